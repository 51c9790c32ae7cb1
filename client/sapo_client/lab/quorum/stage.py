"""A swarm whose auditors are partly a player's, from its first epoch to the claims of everybody.

Honest auditors run ``Agreement`` with their own stores, admission and signing database, and forward what they
take. The contracts are the real ones on an embedded chain with a clock of its own. Only the counts are given:
every account earns the same points in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sapo_client.founding.contracts import LedgerTerms
from sapo_client.founding.defaults import LIMITS
from sapo_client.lab.quorum.chain import (
    BOND_EXIT_SECONDS,
    CHALLENGE_SECONDS,
    EPOCH_SECONDS,
    GENESIS_SECONDS,
    TOKEN,
    Actor,
    StagedChain,
    staged_chain,
)
from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState
from sapo_client.node.auditing.disputes import Dispute, equivocations, find_fraud, posted_trees
from sapo_client.node.auditing.settlement import grace_seconds, settlement_check
from sapo_client.node.runtime.context import Author
from sapo_protocol import merkle, secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.contributions import Approval, Proposal, Tally, cumulative_entries
from sapo_protocol.eip712 import EpochApproval, NodeBinding
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.merkle import Entries
from sapo_protocol.settlement import proposer, quorum_size, turn_begin_seconds
from sapo_protocol.suite import Family, Suite
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import AuditorSet, ContributionAdmission
from sapo_verification.signing.database import SigningDatabase

if TYPE_CHECKING:
    from sapo_client.ledger.fraud import FraudProof
    from sapo_client.ledger.records import EpochRecord

AUDITORS: Final = 4
POINTS: Final = 12
"""Of every honest account in every epoch."""

GHOST: Final = Actor("the player's account")
"""An account of the player, which does nothing for its points."""

_QUESTIONS: Final = 16
"""That an account can pay for in an epoch; the bond of one comes back if nobody answers it."""

_LOOKS: Final = 60
"""In an epoch: how often everybody looks at messages and chain."""


@dataclass(frozen=True, slots=True)
class QuorumPlan:
    """One swarm.

    Attributes:
        liars: how many of the four auditors are the player's.
        accounts: honest ones that earn points.
        asking: whether honest accounts ask for their leaves in a posting that they cannot explain.
        finalised_from: epoch after whose end anybody makes postings final, whatever their own.
        claiming: how many of the honest accounts claim at the end.
        gate: whether accounts bond tokens behind a gate.
        treasury_points: what the treasury can pay.
    """

    liars: int = 0
    accounts: int = 4
    epochs: int = 3
    asking: bool = True
    finalised_from: int = 0
    claiming: int = 8
    gate: bool = False
    treasury_points: int = 10**8


@dataclass(frozen=True, slots=True)
class QuorumOutcome:
    """What became of a swarm.

    Attributes:
        final: epochs with a final root.
        counted: points that the claiming accounts have earned in all epochs.
        paid: points that they were paid.
        player_paid: points that the player's account was paid.
        bonds_lost: bonds that honest auditors and accounts lost.
        player_bonds_lost: bonds that the player's auditors lost.
        epoch_gas: mean gas of a final epoch, for posting and making it final; 0 without any.
    """

    final: int
    counted: int
    paid: int
    player_paid: int
    bonds_lost: int
    player_bonds_lost: int
    epoch_gas: int


class HonestSeat:
    """An honest auditor with its stores."""

    def __init__(self, stage: QuorumStage, actor: Actor) -> None:
        manifest = stage.manifest
        self.actor: Final = actor
        self.contributions: Final = ContributionStore(":memory:", manifest.swarm_id)
        self._judged: tuple[tuple[Dispute, int], FraudProof | None] | None = None
        self._stage = stage
        auditors = AuditorSet(Auditors(stage.auditors))
        self._admission = ContributionAdmission(
            manifest, stage.certificates, self.contributions, lambda: auditors
        )
        self.agreement: Final = Agreement(
            author=Author(actor.seed, actor.node, actor.account),
            account_key=actor.secret,
            manifest=manifest,
            terms=stage.terms,
            contributions=self.contributions,
            signing=SigningDatabase(":memory:"),
        )

    def receive(self, message: bytes, pages: Iterable[bytes]) -> bool:
        """Admit and store a message, or drop it as a node does; return whether it is forwarded."""
        now = self._stage.chain.now_seconds
        try:
            admitted = self._admission.admit(message, now)
        except RemoteProtocolError:
            return False
        self.contributions.add(
            admitted.content_id, admitted.kind, admitted.content, message, received_seconds=now
        )
        self.contributions.add_pages(pages, received_seconds=now)
        return True

    def proof(self, dispute: Dispute) -> FraudProof | None:
        """Return a proof that a live posting is false, if there is one."""
        key = dispute, self.contributions.revision
        if self._judged is None or self._judged[0] != key:
            self._judged = key, find_fraud(dispute, posted_trees(dispute, self.contributions))
        return self._judged[1]

    def explains(self, live: EpochRecord, state: ChainState) -> bool:
        """Whether this auditor comes to the same root from the tallies behind it."""
        content_id, terms = ContentId(live.root.archive_digest), self._stage.terms
        proposal = self.contributions.proposal(content_id)
        return (
            proposal is not None
            and self.contributions.epoch_root(content_id) == live.root
            and settlement_check(
                self.contributions,
                proposal,
                state.last,
                manifest=self._stage.manifest,
                quorum=terms.quorum,
                points_cap=terms.points_cap,
                epoch_budget=terms.epoch_budget,
            )()
        )


class QuorumStage:
    """One swarm; ``play`` lets it run.

    Attributes:
        liars: the player's auditors; `honest` are the others.
        earners: the honest accounts, ascending.
        proposed: what the player's auditors have proposed or posted, with its shares, by its content id.
    """

    def __init__(
        self, chain: StagedChain, plan: QuorumPlan, seats: tuple[Actor, ...], earners: tuple[Actor, ...]
    ) -> None:
        self.chain: Final = chain
        self.plan: Final = plan
        self.auditors: Final = tuple(seat.account for seat in seats)
        self.terms: Final = AgreementTerms(
            Auditors(self.auditors).of, quorum_size(AUDITORS), LIMITS.points_per_epoch, _budget(plan)
        )
        self.manifest: Final = _manifest(chain)
        self.certificates: Final = CertificateStore(self.manifest)
        end = GENESIS_SECONDS + (plan.epochs + 2) * EPOCH_SECONDS
        for seat in seats:
            binding = NodeBinding(seat.node, self.manifest.swarm_id, GENESIS_SECONDS - 60, end)
            envelope = issue_certificate(seat.seed, seat.secret, binding, self.manifest.binding_domain)
            self.certificates.admit(envelope.to_bytes(), GENESIS_SECONDS)
        self.liars: Final = seats[: plan.liars]
        self.honest: Final = tuple(HonestSeat(self, seat) for seat in seats[plan.liars :])
        self.earners: Final = tuple(actor.account for actor in earners)
        self.proposed: Final[dict[ContentId, Proposal]] = {}
        self._forwarded: list[SignedEnvelope] = []
        self._punished: set[tuple[Account, int, int]] = set()

    def play(self, conduct: AuditorConduct) -> QuorumOutcome:
        """Let all epochs end, settle them, and let everybody claim."""
        conduct.begin(self)
        for epoch in range(self.plan.epochs):
            self._settle(epoch, conduct)
        for epoch in range(self.plan.epochs, self.plan.epochs + 2):  # what is live becomes final, or expires
            self._settle(epoch, None)
        return self._outcome()

    def _settle(self, epoch: int, conduct: AuditorConduct | None) -> None:
        """Let the time from an epoch's end to the next one's pass; without a conduct it has no rollouts."""
        waiting = [turn for turn in range(_LOOKS) if turn_begin_seconds(self.manifest, turn) < EPOCH_SECONDS]
        for look in range(_LOOKS):
            age_seconds = look * EPOCH_SECONDS / _LOOKS
            self.chain.now_seconds = epoch_start_seconds(self.manifest, epoch + 1) + age_seconds
            if conduct is not None and age_seconds >= grace_seconds(self.manifest):
                if not self.honest[0].agreement.has_tallied(epoch):
                    self._tally(epoch)
                    conduct.tally(self, epoch)
                while waiting and turn_begin_seconds(self.manifest, waiting[0]) <= age_seconds:
                    conduct.turn(self, epoch, waiting.pop(0))
            if conduct is not None:
                conduct.look(self, epoch)
            for envelope in self._forwarded[:]:
                self._hand(envelope, self.honest)
            self._forwarded.clear()
            for seat in self.honest:
                self._act(seat)
            self._watch(epoch)

    # What honest auditors and accounts do

    def _tally(self, epoch: int) -> None:
        points = tuple((account, POINTS) for account in self.earners)
        for seat in self.honest:
            now = self.chain.now_seconds
            self._spread(seat, seat.agreement.tally(epoch, points, merkle.EMPTY_ROOT, now))

    def _act(self, seat: HonestSeat) -> None:
        step = seat.agreement.step(self.chain.now_seconds, self.chain.state())
        for envelope in step.messages:
            self._spread(seat, envelope)
        for postable in step.postings:
            self.chain.post(seat.actor.account, postable)

    def _spread(self, seat: HonestSeat, envelope: SignedEnvelope) -> None:
        content = seat.contributions.tally(envelope.content_id) or seat.contributions.proposal(
            envelope.content_id
        )
        pages = seat.contributions.pages(content.pages) if content is not None else ()
        self._hand(envelope, [other for other in self.honest if other is not seat], pages)

    def _hand(
        self, envelope: SignedEnvelope, seats: Iterable[HonestSeat], pages: Iterable[bytes] = ()
    ) -> None:
        """Hand a message to honest auditors; who takes it forwards it at the next look."""
        message = envelope.to_bytes()
        taken = [seat for seat in seats if seat.receive(message, pages)]
        if taken:
            self._forwarded.append(envelope)

    def _watch(self, epoch: int) -> None:
        """Do what a watchtower does: punish, challenge, ask, and make final."""
        for seat in self.honest:
            self._punish(seat, epoch)
        state, seat = self.chain.state(), self.honest[0]
        live = self.chain.live() if state.live is not None else None
        if live is None:
            return
        for each in self.honest:
            each.contributions.note_posted(
                live.root.epoch, ContentId(live.root.archive_digest), is_final=False
            )
        proof = seat.proof(Dispute(live.root, state.last, self.terms.points_cap))
        now, ends = self.chain.now_seconds, live.posted_at_seconds + CHALLENGE_SECONDS
        if proof is not None:
            self.chain.challenge(seat.actor.account, proof)
        elif not seat.explains(live, state):
            self._doubt(live, now, ends)
        elif epoch >= self.plan.finalised_from:
            self.chain.finalise_in_time(seat.actor.account)

    def _doubt(self, live: EpochRecord, now: float, ends: float) -> None:
        """Ask for the honest accounts' leaves, and reject a posting that has not shown them in time."""
        for account, deadline in self.chain.questions(live).items():
            if now >= deadline:
                self.chain.reject_hidden(account)
                return
        if self.plan.asking and live.posted_at_seconds + CHALLENGE_SECONDS / 2 <= now < ends:
            self.chain.ask(self.earners[0], live)

    def _punish(self, seat: HonestSeat, epoch: int) -> None:
        for ended in range(max(0, epoch - 1), epoch + 1):
            found = equivocations(seat.contributions, ended, self.chain.domain)
            for (auditor, turn), proof in found.items():
                if (auditor, ended, turn) not in self._punished:
                    self._punished.add((auditor, ended, turn))
                    self.chain.challenge(seat.actor.account, proof)

    # What a player's auditors use

    def publish(
        self,
        liar: Actor,
        message: Tally | Proposal | Approval,
        seats: Sequence[HonestSeat] | None = None,
    ) -> ContentId:
        """Sign a message and hand it to some honest auditors, or to all; keep a proposal for the player."""
        kind = _KINDS[type(message)]
        envelope = seal(kind, self.manifest.swarm_id, message.to_payload(), liar.seed)
        if isinstance(message, Proposal):
            self.proposed[envelope.content_id] = message
        self._hand(envelope, self.honest if seats is None else seats)
        return envelope.content_id

    def tally_of(self, liar: Actor, epoch: int, points: Mapping[Account, int]) -> Tally:
        """Return a tally of a player's auditor."""
        counted = tuple(sorted((account, count) for account, count in points.items() if count))
        return Tally(liar.node, liar.account, epoch, counted, merkle.EMPTY_ROOT)

    def approval_of(self, liar: Actor, content_id: ContentId, proposal: Proposal) -> Approval:
        """Return the approval of a proposal by a player's auditor."""
        signature = self.sign(liar, proposal.approval(content_id))
        return Approval(liar.node, liar.account, proposal.epoch, content_id, signature, proposal.turn)

    def sign(self, liar: Actor, statement: EpochApproval) -> bytes:
        """Return the signature of a player's auditor under a root."""
        return secp256k1.sign(liar.secret, statement.digest(self.chain.domain))

    def proposing(self, epoch: int, turn: int) -> Actor | None:
        """Return the player's auditor whose turn it is, if it is one of them."""
        whose = proposer(self.auditors, epoch, turn)
        return next((liar for liar in self.liars if liar.account == whose), None)

    def is_last_look(self, live: EpochRecord) -> bool:
        """Whether a posting can be made final at the next look, and not at this one."""
        until_final = live.posted_at_seconds + CHALLENGE_SECONDS - self.chain.now_seconds
        return 0 < until_final <= EPOCH_SECONDS / _LOOKS

    def granted(self) -> Mapping[Account, int]:
        """Return everybody's points as of the last final epoch; empty where nobody knows them."""
        return dict(self._entries(self.honest[0].contributions, everybody=True))

    # What is left at the end

    def _entries(self, contributions: ContributionStore, *, everybody: bool) -> Entries:
        """Return the last final cumulative tree, as one auditor knows it, or also the player."""
        last = self.chain.state().last
        if last is None:
            return ()
        content_id = ContentId(last.archive_digest)
        proposal = contributions.proposal(content_id) or (
            self.proposed.get(content_id) if everybody else None
        )
        return cumulative_entries(proposal.shares) if proposal else ()

    def _outcome(self) -> QuorumOutcome:
        chain, known = self.chain, self.honest[0].contributions
        claiming = self.earners[: self.plan.claiming]
        for account in claiming:
            chain.claim(account, self._entries(known, everybody=False))
        chain.claim(GHOST.account, self._entries(known, everybody=True))
        lost = [seat.actor.account for seat in self.honest if not chain.has_bond(seat.actor.account)]
        burned = [a for a in self.earners if self.plan.gate and not chain.has_bond(a, gate=True)]
        final = chain.final_epochs()
        gas = sum(chain.gas(auditor) for auditor in self.auditors)
        return QuorumOutcome(
            final=final,
            counted=self.plan.epochs * POINTS * len(claiming),
            paid=sum(map(chain.paid, claiming)),
            player_paid=chain.paid(GHOST.account),
            bonds_lost=len(lost) + len(burned),
            player_bonds_lost=sum(not chain.has_bond(liar.account) for liar in self.liars),
            epoch_gas=round(gas / final) if final else 0,
        )


class AuditorConduct:
    """A conduct; this one stays silent."""

    def begin(self, stage: QuorumStage) -> None:
        """Act once, before the first epoch ends."""

    def tally(self, stage: QuorumStage, epoch: int) -> None:
        """Act once in an epoch, when the honest auditors publish their tallies."""

    def turn(self, stage: QuorumStage, epoch: int, turn: int) -> None:
        """Act at the beginning of a turn to propose."""

    def look(self, stage: QuorumStage, epoch: int) -> None:
        """Act at any time, before the honest auditors do."""


_KINDS: Final = {Tally: Kind.TALLY, Proposal: Kind.PROPOSAL, Approval: Kind.APPROVAL}


def play(plan: QuorumPlan, conduct: AuditorConduct) -> QuorumOutcome:
    """Let a swarm run under a plan, its player's auditors by their conduct."""
    seats = tuple(sorted((Actor(f"auditor {n}") for n in range(AUDITORS)), key=lambda seat: seat.account))
    earners = _earners(plan)
    terms = LedgerTerms(
        auditors=tuple(seat.account for seat in seats),
        quorum=quorum_size(AUDITORS),
        genesis_seconds=GENESIS_SECONDS,
        epoch_seconds=EPOCH_SECONDS,
        challenge_seconds=CHALLENGE_SECONDS,
        epoch_budget_points=_budget(plan),
        points_cap=LIMITS.points_per_epoch,
        account_exit_seconds=BOND_EXIT_SECONDS if plan.gate else None,
        reward_tokens=plan.treasury_points * TOKEN,
    )
    with staged_chain(terms, (*seats, *earners[:1])) as chain:
        for actor in (GHOST, *earners[: plan.claiming]):
            chain.enrol(actor.account)
        chain.fund(earners[0].account, plan.epochs * _QUESTIONS * chain.verifier.question_bond())
        if plan.gate:
            for earner in earners:
                chain.bond(earner.account, TOKEN)
        return QuorumStage(chain, plan, seats, earners).play(conduct)


def _earners(plan: QuorumPlan) -> tuple[Actor, ...]:
    actors = (Actor(f"account {number}") for number in range(plan.accounts))
    return tuple(sorted(actors, key=lambda actor: actor.account))


def _budget(plan: QuorumPlan) -> int:
    return plan.accounts * POINTS + 2 * LIMITS.points_per_epoch


def _manifest(chain: StagedChain) -> Manifest:
    """Return the manifest of the swarm; its families' items are never derived."""
    family = Family("table", "0", "{}", "exact/1", "{question}", "plain", max_completion_bytes=8)
    return Manifest(
        name="auditors with strategies",
        chain_id=chain.deployment.chain_id,
        registry=chain.deployment.registry,
        ledger=chain.deployment.ledger,
        finality_seconds=0,
        genesis_seconds=GENESIS_SECONDS,
        epoch_seconds=EPOCH_SECONDS,
        suite=Suite("none", (family,), Digest(bytes(32))),
        limits=LIMITS,
        version=2,
    )
