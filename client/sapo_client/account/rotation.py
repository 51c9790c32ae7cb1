"""A new node key under the same account: the old key signs nothing from then on.

The order is what makes it safe to be broken off anywhere: the new identity is on disk first, then the old
key is given up in the signing database, then the chain is told. Run again, it goes on where it stopped. The
mark of signed slots belongs to the account, so the new key starts above all that the old one signed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sapo_client import keystore, locks
from sapo_client.account.ledger_commands import registrations
from sapo_client.account.ledger_session import Consent, Facts
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.node.auditing.registration import end_of_new
from sapo_client.node.gossip.own_certificate import OwnCertificate, own_binding
from sapo_client.node.runtime.manifests import settle_manifest
from sapo_client.node.runtime.statements import (
    Signer,
    Words,
    registration_words,
    revocation_words,
    statement_words,
)
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.signing.database import SigningDatabase


@dataclass(frozen=True, slots=True)
class Rotation:
    """From which identity to which, both of one account."""

    old: Identity
    new: Identity


def rotate(config: Config, old: Path, new: Path, consent: Consent) -> Facts:
    """A new node key, its certificate, and the end of the old key's claim; the node must be stopped.

    Raises:
        SapoError: a node runs, the new file belongs to another account, or its owner does not agree.
    """
    data = DataDir(config.data_dir)
    with _stopped(data):
        source = PassphraseSource(config.passphrase_file)
        identity = keystore.load(old, source)
        with identity.lock():
            manifest = settle_manifest(config.swarm.manifest, data)
            rotation = Rotation(identity, _successor(identity, new, source))
            not_after = end_of_new(time.time())
            consent(_words(manifest, rotation, not_after))
            _switch(data, manifest, rotation)
            told = _tell_chain(config, manifest, rotation, not_after)
    return {
        "account": str(identity.account),
        "old node id": identity.node_id.hex(),
        "new node id": rotation.new.node_id.hex(),
        "path": str(new),
        **told,
    }


def require_in_use(data: DataDir, identity: Identity) -> None:
    """Nothing, unless the key was given up here.

    Raises:
        SapoError: it was (exit code 4).
    """
    if data.database.exists() and SigningDatabase(data.database).is_retired(identity.node_id):
        raise SapoError(
            f"the node key in {identity.path} was replaced and never signs again",
            hint="join with the identity that `sapo keys rotate` made",
            exit_code=ExitCode.KEYSTORE,
        )


def _successor(old: Identity, path: Path, source: PassphraseSource) -> Identity:
    """The new identity: made now, or the one of a rotation that was broken off."""
    file = keystore.read(old.path)
    if not path.exists():
        passphrase = source.read(f"identity {path.stem}") if file.encrypted else None
        return keystore.create(path, passphrase, account_key=old.account_key)
    new = keystore.load(path, source)
    if new.account != old.account or new.node_id == old.node_id:
        raise SapoError(
            f"{path} is not a new key of account {old.account}",
            hint="name a file that does not exist yet",
            exit_code=ExitCode.KEYSTORE,
        )
    return new


def _words(manifest: Manifest, rotation: Rotation, not_after: int) -> list[Words]:
    binding = own_binding(rotation.new.node_id, manifest, time.time())
    words = [statement_words(binding, manifest.binding_domain)]
    if manifest.registry is not None:
        signer = Signer(manifest.chain_id, rotation.old.account)
        words.append(registration_words(signer, manifest, rotation.new.node_id, not_after))
        words.append(revocation_words(signer, manifest, rotation.old.node_id))
    return words


def _switch(data: DataDir, manifest: Manifest, rotation: Rotation) -> None:
    """From here on the new key speaks for the account on this machine, and the old one does not."""
    signing = SigningDatabase(data.database)
    signing.retire(rotation.old.node_id)
    certificate = OwnCertificate(
        node_seed=rotation.new.node_seed,
        account_key=rotation.new.account_key,
        manifest=manifest,
        clock=time.time,
    )
    CertificateBook(manifest, data.database).admit(certificate.message(), time.time())


def _tell_chain(config: Config, manifest: Manifest, rotation: Rotation, not_after: int) -> Facts:
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
    with locks.lock(data.lock, what=f"data directory {data.root}"):
        yield
