"""Replacing a node key under the same account: the old key never signs again.

The order makes an interruption safe at every point: first the new identity is written to disk, then the old
key is retired in the signing database, then the chain is updated. A second run continues where the first one
stopped. The mark of signed slots belongs to the account, so the new key starts above all slots that the old
one signed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapo_client import keystore, locks
from sapo_client.account.ledger_commands import registrations
from sapo_client.account.ledger_session import Consent
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.node.auditing.registration import end_of_new
from sapo_client.node.gossip.own_certificate import OwnCertificate, own_binding
from sapo_client.node.runtime.manifests import settle_manifest
from sapo_client.node.runtime.statements import (
    SignedFields,
    Signer,
    describe_registration,
    describe_revocation,
    describe_statement,
)
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.signing.database import SigningDatabase


@dataclass(frozen=True, slots=True)
class Rotation:
    """The old and the new identity of one account."""

    old: Identity
    new: Identity


def rotate(config: Config, old: Path, new: Path, consent: Consent) -> dict[str, Any]:
    """Make a new node key and certificate, and end the old key's claim; the node must be stopped.

    Raises:
        SapoError: a node runs, the new file belongs to another account, or the owner refuses.
    """
    data = DataDir(config.data_dir)
    with _stopped(data):
        source = PassphraseSource(config.passphrase_file)
        identity = keystore.load(old, source)
        with identity.lock():
            manifest = settle_manifest(config.swarm.manifest, data)
            rotation = Rotation(identity, _successor(identity, new, source))
            not_after = end_of_new(time.time())
            consent(_signed_fields(manifest, rotation, not_after))
            _activate(data, manifest, rotation)
            on_chain = _update_chain(config, manifest, rotation, not_after)
    return {
        "account": str(identity.account),
        "old node id": identity.node_id.hex(),
        "new node id": rotation.new.node_id.hex(),
        "path": str(new),
        **on_chain,
    }


def _successor(old: Identity, path: Path, source: PassphraseSource) -> Identity:
    """Return the new identity: a new one, or that of an interrupted rotation."""
    file = keystore.read(old.path)
    if not path.exists():
        passphrase = source.read(f"identity {path.stem}") if file.encrypted else None
        return keystore.create(path, passphrase, account_key=old.account_key)
    new = keystore.load(path, source)
    if new.account != old.account or new.node_id == old.node_id:
        raise SapoError(
            f"{path} does not hold a new key of account {old.account}",
            hint="name a file that does not exist yet",
            exit_code=ExitCode.KEYSTORE,
        )
    return new


def _signed_fields(manifest: Manifest, rotation: Rotation, not_after: int) -> list[SignedFields]:
    binding = own_binding(rotation.new.node_id, manifest, time.time())
    fields = [describe_statement(binding, manifest.binding_domain)]
    if manifest.registry is not None:
        signer = Signer(manifest.chain_id, rotation.old.account)
        fields.append(describe_registration(signer, manifest, rotation.new.node_id, not_after))
        fields.append(describe_revocation(signer, manifest, rotation.old.node_id))
    return fields


def _activate(data: DataDir, manifest: Manifest, rotation: Rotation) -> None:
    """Retire the old key and store the new certificate: from now on only the new key signs here."""
    signing = SigningDatabase(data.database)
    signing.retire(rotation.old.node_id)
    certificate = OwnCertificate(
        node_seed=rotation.new.node_seed,
        account_key=rotation.new.account_key,
        manifest=manifest,
        clock=time.time,
    )
    CertificateStore(manifest, data.database).admit(certificate.message(), time.time())


def _update_chain(config: Config, manifest: Manifest, rotation: Rotation, not_after: int) -> dict[str, Any]:
    if not manifest.has_chain or not config.ledger.rpc_urls:
        return {"on the chain": "nothing: no chain, or no --rpc"}
    return registrations(config, rotation.new, end=rotation.old.node_id, not_after=not_after)


@contextlib.contextmanager
def _stopped(data: DataDir) -> Iterator[None]:
    if not data.database.exists():
        raise SapoError(
            f"no node ever ran in {data.root}",
            hint="name its data directory with --data-dir: it knows what the old key has signed",
            exit_code=ExitCode.DATA,
        )
    with locks.Lock.of_directory(data).held():
        yield
