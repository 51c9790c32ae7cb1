"""Admission of contributions: stages 1 to 7 of tallies, proposals and approvals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sapo_protocol.contributions import (
    Approval,
    Proposal,
    Tally,
    parse_approval,
    parse_proposal,
    parse_tally,
)
from sapo_protocol.envelope import Kind, SignedEnvelope, parse_envelope
from sapo_protocol.epochs import require_over, require_remembered
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.settlement import proposer, turn_count
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.admission.certificates import CertificateStore

Contribution = Tally | Proposal | Approval


@dataclass(frozen=True, slots=True)
class AdmittedContribution:
    """A contribution signed by an auditor of its epoch; its points are not checked."""

    content_id: ContentId
    kind: Kind
    content: Contribution


@dataclass(frozen=True, slots=True)
class AuditorSet:
    """The accounts that audit a swarm.

    Attributes:
        schedule: the auditors by epoch.
        by_turns: whether proposals belong to turns; false on a ledger of version 0.1.0.
    """

    schedule: Auditors = field(default_factory=Auditors)
    by_turns: bool = True


class KnownContributions(Protocol):
    """The contributions that were admitted before."""

    def has(self, content_id: ContentId) -> bool:
        """Whether a content was admitted."""

    def is_posted(self, content_id: ContentId) -> bool:
        """Whether the ledger's root of the epoch is that of this content, as far as this node knows."""

    def has_room(self, content_id: ContentId, kind: Kind, content: Contribution) -> bool:
        """Whether one more message of its account, kind, epoch and turn may be admitted."""


class ContributionAdmission:
    """Admission of contributions; it keeps no state of its own.

    Args:
        known: the contributions that were admitted before.
        auditors: returns the auditors as this node knows them now.
    """

    def __init__(
        self,
        manifest: Manifest,
        certificates: CertificateStore,
        known: KnownContributions,
        auditors: Callable[[], AuditorSet],
    ) -> None:
        self._manifest = manifest
        self._certificates = certificates
        self._known = known
        self._auditors = auditors
        self._turns = turn_count(manifest)
        self._families = len(manifest.suite.families) if manifest.difficulty else 0

    def admit(self, data: bytes, now_seconds: float) -> AdmittedContribution:
        """Admit the contribution in a message and return it.

        Raises:
            RemoteProtocolError: with the rule that decides the verdict.
        """
        envelope = parse_envelope(data, self._manifest.swarm_id)
        content = parse_contribution(envelope, self._families)
        require_over(self._manifest, content.epoch, now_seconds)
        if not self._known.is_posted(envelope.content_id):
            require_remembered(self._manifest, content.epoch, now_seconds)
        if self._known.has(envelope.content_id):
            raise RemoteProtocolError(Rule.CONTRIBUTION_NEW, "the contribution is known")
        self._certificates.require(content.node, content.account, now_seconds)
        auditors = self._auditors()
        if content.account not in auditors.schedule.of(content.epoch):
            detail = f"account {content.account} is not an auditor of epoch {content.epoch}"
            raise RemoteProtocolError(Rule.AUTHOR_AUDITS, detail)
        self._require_turn(content, auditors)
        self._require_record(content)
        if not envelope.is_signed_by(content.node):
            raise RemoteProtocolError(Rule.NODE_SIGNED, "not signed by the node that it names")
        if not self._known.has_room(envelope.content_id, envelope.kind, content):
            raise RemoteProtocolError(Rule.CONTRIBUTION_ROOM, "its author has already sent two in this turn")
        return AdmittedContribution(envelope.content_id, envelope.kind, content)

    def _require_turn(self, content: Contribution, auditors: AuditorSet) -> None:
        if turn_of(content) >= self._turns:
            raise RemoteProtocolError(Rule.TURN_EXISTS, f"no epoch has a turn {turn_of(content)}")
        if (
            isinstance(content, Proposal)
            and auditors.by_turns
            and proposer(auditors.schedule.of(content.epoch), content.epoch, content.turn) != content.account
        ):
            raise RemoteProtocolError(Rule.PROPOSERS_TURN, f"turn {content.turn} belongs to another auditor")

    def _require_record(self, content: Contribution) -> None:
        difficulty = self._manifest.difficulty
        if difficulty and isinstance(content, Proposal) and not difficulty.is_sound(content.record):
            raise RemoteProtocolError(Rule.RECORD_WEIGHTS, "the weights of a ladder do not add up to 1000")


def turn_of(content: Contribution) -> int:
    """Return the turn that a contribution belongs to; 0 for a tally, which belongs to none."""
    return 0 if isinstance(content, Tally) else content.turn


def parse_contribution(envelope: SignedEnvelope, families: int | None = None) -> Contribution:
    """Return the tally, proposal or approval in an envelope, its signature not yet checked.

    Args:
        families: number of families of the suite if the manifest has ladders, 0 if not, None for a
            contribution that was admitted before.

    Raises:
        RemoteProtocolError: with the rule that it breaks.
    """
    match envelope.kind:
        case Kind.TALLY:
            return parse_tally(envelope.payload, families)
        case Kind.PROPOSAL:
            return parse_proposal(envelope.payload, families)
        case Kind.APPROVAL:
            return parse_approval(envelope.payload)
        case kind:
            raise RemoteProtocolError(Rule.TOPIC_KIND, f"a {kind.name} is not a contribution")
