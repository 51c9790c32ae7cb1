"""An epoch's dossier: the contribution messages behind its root, as received, in one JSON file.

With it, the manifest and the chain anyone can recompute the root without trusting any node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import DataDir
from sapo_protocol.certificate import open_certificate
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Account, NodeId, SwarmId
from sapo_protocol.json_text import require_shallow
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import stored_certificates
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import parse_contribution

_FORMAT: Final = "sapo/epoch-dossier/1"


def _bytes(value: object) -> object:
    return bytes.fromhex(value) if isinstance(value, str) else value


_Hexadecimal = Annotated[bytes, BeforeValidator(_bytes)]


class _File(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    format: Literal["sapo/epoch-dossier/1"]
    swarm_id: _Hexadecimal
    epoch: int
    certificates: list[_Hexadecimal]
    messages: list[_Hexadecimal]


@dataclass(frozen=True, slots=True)
class Dossier:
    """Signed messages, none of them checked.

    Attributes:
        certificates: those of the messages' authors.
        messages: tallies, proposals and approvals of the epoch.
    """

    swarm_id: SwarmId
    epoch: int
    certificates: tuple[bytes, ...]
    messages: tuple[bytes, ...]

    def to_json(self) -> str:
        """Return the text of the dossier's file."""
        document = {
            "format": _FORMAT,
            "swarm_id": str(self.swarm_id),
            "epoch": self.epoch,
            "certificates": [envelope.hex() for envelope in self.certificates],
            "messages": [envelope.hex() for envelope in self.messages],
        }
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Dossier:
        """Parse the text of a dossier's file.

        Raises:
            SapoError: it is not a dossier.
        """
        try:
            file = _File.model_validate(json.loads(require_shallow(text)))
            return cls(SwarmId(file.swarm_id), file.epoch, tuple(file.certificates), tuple(file.messages))
        except (ValidationError, ValueError, LocalProtocolError) as error:
            raise SapoError(
                "the file is not an epoch dossier",
                hint="name a file that `sapo ledger export EPOCH FILE` wrote",
                exit_code=ExitCode.USAGE,
            ) from error


def collect(manifest: Manifest, data: DataDir, epoch: int) -> Dossier:
    """Collect the contributions of an epoch that a node holds."""
    contributions = ContributionStore(data.database, manifest.swarm_id)
    envelopes = [parse_envelope(message, manifest.swarm_id) for message in contributions.envelopes(epoch)]
    messages = [(envelope, parse_contribution(envelope)) for envelope in envelopes]
    of_epoch = [(envelope, content) for envelope, content in messages if content.epoch == epoch]
    authors = {(content.node, content.account) for _, content in of_epoch}
    stored = stored_certificates(data.database)
    certificates = tuple(envelope for node, account, envelope in stored if (node, account) in authors)
    sealed = tuple(envelope.to_bytes() for envelope, _ in of_epoch)
    return Dossier(manifest.swarm_id, epoch, certificates, sealed)


def authentic(dossier: Dossier, manifest: Manifest, auditors: tuple[Account, ...]) -> ContributionStore:
    """Return a store of the messages that this swarm's auditors signed with keys certified at that time."""
    contributions = ContributionStore(":memory:", manifest.swarm_id)
    keys = set(_keys(dossier, manifest))
    for message in dossier.messages:
        with suppress(RemoteProtocolError):
            envelope = parse_envelope(message, manifest.swarm_id)
            content = parse_contribution(envelope)
            known = (content.node, content.account) in keys and content.account in auditors
            if known and envelope.is_signed_by(content.node):
                contributions.add(envelope.content_id, envelope.kind, content, message)
    return contributions


def _keys(dossier: Dossier, manifest: Manifest) -> Iterator[tuple[NodeId, Account]]:
    after = epoch_start_seconds(manifest, dossier.epoch + 1)
    for message in dossier.certificates:
        with suppress(RemoteProtocolError):
            envelope = parse_envelope(message, manifest.swarm_id)
            certificate = open_certificate(envelope, manifest.binding_domain)
            if (
                certificate.not_after_seconds > after
            ):  # a later certificate is fine: nodes renew them at every start
                yield certificate.node, certificate.account
