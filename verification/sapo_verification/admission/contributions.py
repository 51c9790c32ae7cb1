"""Admission of contributions: stages 1 to 7 of tallies, proposals and approvals."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Tally,
    parse_approval,
    parse_proposal,
    parse_tally,
)
from sapo_protocol.envelope import Kind, SignedEnvelope, parse_envelope
from sapo_protocol.epochs import require_over
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_verification.admission.certificates import CertificateStore

Contribution = Tally | Proposal | Approval

_PARSERS: Final[Mapping[Kind, Callable[[bytes], Contribution]]] = {
    Kind.TALLY: parse_tally,
    Kind.PROPOSAL: parse_proposal,
    Kind.APPROVAL: parse_approval,
}


@dataclass(frozen=True, slots=True)
class AdmittedContribution:
    """A contribution that an auditor signed; its points are not checked here."""

    content_id: ContentId
    kind: Kind
    content: Contribution
    envelope: bytes


class ContributionAdmission:
    """Admission of contributions; it keeps no state of its own.

    Args:
        is_known: whether a content was admitted before.
        auditors: returns the accounts that are auditors, as far as this node knows them now.
    """

    def __init__(
        self,
        manifest: Manifest,
        certificates: CertificateStore,
        is_known: Callable[[ContentId], bool],
        auditors: Callable[[], Collection[Account]],
    ) -> None:
        self._manifest = manifest
        self._certificates = certificates
        self._is_known = is_known
        self._auditors = auditors

    def admit(self, data: bytes, now_seconds: float) -> AdmittedContribution:
        """Admit the contribution in a message and return it.

        Raises:
            RemoteProtocolError: with the rule that decides the verdict.
        """
        envelope = parse_envelope(data, self._manifest.swarm_id)
        content = parse_contribution(envelope)
        require_over(self._manifest, content.epoch, now_seconds)
        if self._is_known(envelope.content_id):
            raise RemoteProtocolError(Rule.CONTRIBUTION_NEW, "the contribution is known")
        self._certificates.require(content.node, content.account, now_seconds)
        if content.account not in self._auditors():
            raise RemoteProtocolError(Rule.AUTHOR_AUDITS, f"account {content.account} is no auditor")
        if not envelope.is_signed_by(content.node):
            raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
        return AdmittedContribution(envelope.content_id, envelope.kind, content, data)


def parse_contribution(envelope: SignedEnvelope) -> Contribution:
    """Return the tally, proposal or approval in an envelope, its signature not yet checked.

    Raises:
        RemoteProtocolError: with the rule that it breaks.
    """
    if (parse := _PARSERS.get(envelope.kind)) is None:
        raise RemoteProtocolError(Rule.TOPIC_KIND, f"a {envelope.kind.name} among contributions")
    return parse(envelope.payload)
