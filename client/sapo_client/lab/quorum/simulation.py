"""Simulation of a swarm in which one player controls some auditors, from the first epoch to all claims.

Honest auditors run ``Agreement`` with their own stores, admission and signing database, and forward accepted
messages. The contracts are the real ones on an embedded chain with its own clock. Only the counts are fixed:
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
    Actor,
    SimulatedChain,
    simulated_chain,
)
from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState
from sapo_client.node.auditing.disputes import Dispute, equivocations, find_fraud, posted_trees
from sapo_client.node.auditing.settlement import grace_seconds, settlement_check
from sapo_client.node.runtime.context import Author
from sapo_client.units import TOKEN
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
"""Points of every honest account in every epoch."""

PLAYER: Final = Actor("the player's account")
"""The player's account, which contributes nothing."""

_QUESTIONS: Final = 16
"""Number of questions that an account can pay for in an epoch; a question's bond is returned if nobody
answers it."""

_STEPS: Final = 60
"""Number of simulation steps in an epoch; in each, all auditors handle messages and read the chain."""


@dataclass(frozen=True, slots=True)
class QuorumPlan:
    """Settings of a simulation.

    Attributes:
        liars: number of the four auditors that belong to the player.
        accounts: number of honest accounts that earn points.
        asking: whether honest accounts ask for their leaves in a posting that they cannot verify.
        finalised_from: epoch after whose end postings of any epoch are made final.
        claiming: number of honest accounts that claim at the end.
        gate: whether the swarm has a bond gate.
        treasury_points: number of points that the treasury can pay.
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
    """Result of a simulation.

    Attributes:
        final: number of epochs with a final root.
        counted: points that the claiming accounts have earned in all epochs.
        paid: points that were paid to them.
        player_paid: points that were paid to the player's account.
        bonds_lost: number of bonds that honest auditors and accounts lost.
        player_bonds_lost: number of bonds that the player's auditors lost.
        epoch_gas: mean gas of a final epoch, for posting and making it final; 0 without a final epoch.
    """

    final: int
    counted: int
    paid: int
    player_paid: int
    bonds_lost: int
    player_bonds_lost: int
    epoch_gas: int


class SimulatedAuditor:
    """An honest auditor with its stores."""

    def __init__(self, simulation: QuorumSimulation, actor: Actor) -> None:
        manifest = simulation.manifest
        self.actor: Final = actor
        self.contributions: Final = ContributionStore(":memory:", manifest.swarm_id)
        self._judged: tuple[tuple[Dispute, int], FraudProof | None] | None = None
        self._simulation = simulation
        auditors = AuditorSet(Auditors(simulation.auditors))
        self._admission = ContributionAdmission(
            manifest, simulation.certificates, self.contributions, lambda: auditors
        )
        self.agreement: Final = Agreement(
            author=Author(actor.seed, actor.node, actor.account),
            account_key=actor.secret,
            manifest=manifest,
            terms=simulation.terms,
            contributions=self.contributions,
            signing=SigningDatabase(":memory:"),
        )

    def receive(self, message: bytes, pages: Iterable[bytes]) -> bool:
        """Admit and store a message, or drop it as a node does; return whether it is admitted."""
        now = self._simulation.chain.now_seconds
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
        """Return a proof that a live posting is false; None without one."""
        key = dispute, self.contributions.revision
        if self._judged is None or self._judged[0] != key:
            self._judged = key, find_fraud(dispute, posted_trees(dispute, self.contributions))
        return self._judged[1]

    def explains(self, live: EpochRecord, state: ChainState) -> bool:
        """Whether this auditor computes the same root from the tallies named by its proposal."""
        content_id, terms = ContentId(live.root.archive_digest), self._simulation.terms
        proposal = self.contributions.proposal(content_id)
        return (
            proposal is not None
            and self.contributions.epoch_root(content_id) == live.root
            and settlement_check(
                self.contributions,
                proposal,
                state.last,
                manifest=self._simulation.manifest,
                quorum=terms.quorum,
                points_cap=terms.points_cap,
                epoch_budget=terms.epoch_budget,
            )()
        )


class QuorumSimulation:
    """One simulation; ``play`` runs it.

    Attributes:
        liars: the player's auditors; `honest` are the others.
        earners: the honest accounts, ascending.
        proposed: proposals of the player's auditors, posted ones included, by content id.
    """

    def __init__(
        self, chain: SimulatedChain, plan: QuorumPlan, auditors: tuple[Actor, ...], earners: tuple[Actor, ...]
    ) -> None:
        self.chain: Final = chain
        self.plan: Final = plan
        self.auditors: Final = tuple(auditor.account for auditor in auditors)
        self.terms: Final = AgreementTerms(
            Auditors(self.auditors).of, quorum_size(AUDITORS), LIMITS.points_per_epoch, _budget(plan)
        )
        self.manifest: Final = _manifest(chain)
        self.certificates: Final = CertificateStore(self.manifest)
        end = GENESIS_SECONDS + (plan.epochs + 2) * EPOCH_SECONDS
        for auditor in auditors:
            binding = NodeBinding(auditor.node, self.manifest.swarm_id, GENESIS_SECONDS - 60, end)
            envelope = issue_certificate(auditor.seed, auditor.secret, binding, self.manifest.binding_domain)
            self.certificates.admit(envelope.to_bytes(), GENESIS_SECONDS)
        self.liars: Final = auditors[: plan.liars]
        self.honest: Final = tuple(SimulatedAuditor(self, auditor) for auditor in auditors[plan.liars :])
        self.earners: Final = tuple(actor.account for actor in earners)
        self.proposed: Final[dict[ContentId, Proposal]] = {}
        self._forwarded: list[SignedEnvelope] = []
        self._punished: set[tuple[Account, int, int]] = set()

    def play(self, behaviour: AuditorBehaviour) -> QuorumOutcome:
        """Settle all epochs, and claim for all accounts."""
        behaviour.begin(self)
        for epoch in range(self.plan.epochs):
            self._settle(epoch, behaviour)
        for epoch in range(self.plan.epochs, self.plan.epochs + 2):  # what is live becomes final, or expires
            self._settle(epoch, None)
        return self._outcome()

    def _settle(self, epoch: int, behaviour: AuditorBehaviour | None) -> None:
        """Simulate the time from an epoch's end to the next end; without a behaviour it has no rollouts."""
        waiting = [turn for turn in range(_STEPS) if turn_begin_seconds(self.manifest, turn) < EPOCH_SECONDS]
        for step in range(_STEPS):
            age_seconds = step * EPOCH_SECONDS / _STEPS
            self.chain.now_seconds = epoch_start_seconds(self.manifest, epoch + 1) + age_seconds
            if behaviour is not None and age_seconds >= grace_seconds(self.manifest):
                if not self.honest[0].agreement.has_tallied(epoch):
                    self._tally(epoch)
                    behaviour.tally(self, epoch)
                while waiting and turn_begin_seconds(self.manifest, waiting[0]) <= age_seconds:
                    behaviour.turn(self, epoch, waiting.pop(0))
            if behaviour is not None:
                behaviour.act(self, epoch)
            for envelope in self._forwarded[:]:
                self._deliver(envelope, self.honest)
            self._forwarded.clear()
            for auditor in self.honest:
                self._act(auditor)
            self._watch(epoch)

    # What honest auditors and accounts do

    def _tally(self, epoch: int) -> None:
        points = tuple((account, POINTS) for account in self.earners)
        for auditor in self.honest:
            now = self.chain.now_seconds
            self._broadcast(auditor, auditor.agreement.tally(epoch, points, merkle.EMPTY_ROOT, now))

    def _act(self, auditor: SimulatedAuditor) -> None:
        step = auditor.agreement.step(self.chain.now_seconds, self.chain.state())
        for envelope in step.messages:
            self._broadcast(auditor, envelope)
        for postable in step.postings:
            self.chain.post(auditor.actor.account, postable)

    def _broadcast(self, auditor: SimulatedAuditor, envelope: SignedEnvelope) -> None:
        content = auditor.contributions.tally(envelope.content_id) or auditor.contributions.proposal(
            envelope.content_id
        )
        pages = auditor.contributions.pages(content.pages) if content is not None else ()
        self._deliver(envelope, [other for other in self.honest if other is not auditor], pages)

    def _deliver(
        self, envelope: SignedEnvelope, auditors: Iterable[SimulatedAuditor], pages: Iterable[bytes] = ()
    ) -> None:
        """Deliver a message to honest auditors; if one admits it, it is forwarded in the next step."""
        message = envelope.to_bytes()
        taken = [auditor for auditor in auditors if auditor.receive(message, pages)]
        if taken:
            self._forwarded.append(envelope)

    def _watch(self, epoch: int) -> None:
        """Watch the chain as a node does: prove equivocations, challenge, ask, and make postings final."""
        for auditor in self.honest:
            self._punish(auditor, epoch)
        state, auditor = self.chain.state(), self.honest[0]
        live = self.chain.live() if state.live is not None else None
        if live is None:
            return
        for each in self.honest:
            self._obtain(each, live.root.epoch, ContentId(live.root.archive_digest))
        proof = auditor.proof(Dispute(live.root, state.last, self.terms.points_cap))
        now, ends = self.chain.now_seconds, live.posted_at_seconds + CHALLENGE_SECONDS
        if proof is not None:
            self.chain.challenge(auditor.actor.account, proof)
        elif not auditor.explains(live, state):
            self._ask_for_leaves(live, now, ends)
        elif epoch >= self.plan.finalised_from:
            self.chain.finalise_in_time(auditor.actor.account)

    def _obtain(self, auditor: SimulatedAuditor, epoch: int, proposal: ContentId) -> None:
        """Ask the other honest auditors for a posting's proposal, or a tally that it names, if missing."""
        known = auditor.contributions
        known.note_posted(epoch, proposal, is_final=False)
        for other in self.honest:
            if not known.has(proposal) or known.lacks_tallies(proposal):
                for message in other.contributions.envelopes(epoch):
                    auditor.receive(message, ())

    def _ask_for_leaves(self, live: EpochRecord, now: float, ends: float) -> None:
        """Ask for an honest account's leaves, and reject a posting whose question is not answered in time."""
        for account, deadline in self.chain.questions(live).items():
            if now >= deadline:
                self.chain.reject_hidden(account)
                return
        if self.plan.asking and live.posted_at_seconds + CHALLENGE_SECONDS / 2 <= now < ends:
            self.chain.ask(self.earners[0], live)

    def _punish(self, auditor: SimulatedAuditor, epoch: int) -> None:
        for ended in range(max(0, epoch - 1), epoch + 1):
            found = equivocations(auditor.contributions, ended, self.chain.domain)
            for (accused, turn), proof in found.items():
                if (accused, ended, turn) not in self._punished:
                    self._punished.add((accused, ended, turn))
                    self.chain.challenge(auditor.actor.account, proof)

    # What a player's auditors use

    def publish(
        self,
        liar: Actor,
        message: Tally | Proposal | Approval,
        auditors: Sequence[SimulatedAuditor] | None = None,
    ) -> ContentId:
        """Sign a message and deliver it to some or all honest auditors; keep a proposal for the player."""
        kind = _KINDS[type(message)]
        envelope = seal(kind, self.manifest.swarm_id, message.to_payload(), liar.seed)
        if isinstance(message, Proposal):
            self.proposed[envelope.content_id] = message
        self._deliver(envelope, self.honest if auditors is None else auditors)
        return envelope.content_id

    def forward(self, envelopes: Iterable[SignedEnvelope]) -> None:
        """Deliver messages to all honest auditors in this step."""
        self._forwarded.extend(envelopes)

    def tally_of(self, liar: Actor, epoch: int, points: Mapping[Account, int]) -> Tally:
        """Return a tally signed as one of the player's auditors."""
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
        """Return the proposer of a turn if it is one of the player's auditors, else None."""
        whose = proposer(self.auditors, epoch, turn)
        return next((liar for liar in self.liars if liar.account == whose), None)

    def is_last_challenge_step(self, live: EpochRecord) -> bool:
        """Whether a posting can be challenged in this step and made final in the next one."""
        until_final = live.posted_at_seconds + CHALLENGE_SECONDS - self.chain.now_seconds
        return 0 < until_final <= EPOCH_SECONDS / _STEPS

    def final_points(self) -> Mapping[Account, int]:
        """Return all accounts' points after the last final epoch; empty if they are unknown."""
        return dict(self._entries(self.honest[0].contributions, everybody=True))

    # Results

    def _entries(self, contributions: ContributionStore, *, everybody: bool) -> Entries:
        """Return the last final cumulative tree, from one auditor's store, or also from the player's."""
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
        chain.claim(PLAYER.account, self._entries(known, everybody=True))
        lost = [auditor.actor.account for auditor in self.honest if not chain.has_bond(auditor.actor.account)]
        burned = [a for a in self.earners if self.plan.gate and not chain.has_bond(a, gate=True)]
        final = chain.final_epochs()
        gas = sum(chain.gas(auditor) for auditor in self.auditors)
        return QuorumOutcome(
            final=final,
            counted=self.plan.epochs * POINTS * len(claiming),
            paid=sum(map(chain.paid, claiming)),
            player_paid=chain.paid(PLAYER.account),
            bonds_lost=len(lost) + len(burned),
            player_bonds_lost=sum(not chain.has_bond(liar.account) for liar in self.liars),
            epoch_gas=round(gas / final) if final else 0,
        )


class AuditorBehaviour:
    """Behaviour of the player's auditors; this base class does nothing."""

    def begin(self, simulation: QuorumSimulation) -> None:
        """Act once, before the first epoch ends."""

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        """Act once in an epoch, when the honest auditors publish their tallies."""

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        """Act at the beginning of a turn to propose."""

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        """Act in every step, before the honest auditors do."""


_KINDS: Final = {Tally: Kind.TALLY, Proposal: Kind.PROPOSAL, Approval: Kind.APPROVAL}


def play(plan: QuorumPlan, behaviour: AuditorBehaviour) -> QuorumOutcome:
    """Simulate a plan with a behaviour of the player's auditors."""
    auditors = tuple(
        sorted((Actor(f"auditor {n}") for n in range(AUDITORS)), key=lambda auditor: auditor.account)
    )
    earners = _earners(plan)
    terms = LedgerTerms(
        auditors=tuple(auditor.account for auditor in auditors),
        quorum=quorum_size(AUDITORS),
        genesis_seconds=GENESIS_SECONDS,
        epoch_seconds=EPOCH_SECONDS,
        challenge_seconds=CHALLENGE_SECONDS,
        epoch_budget_points=_budget(plan),
        points_cap=LIMITS.points_per_epoch,
        account_exit_seconds=BOND_EXIT_SECONDS if plan.gate else None,
        reward_tokens=plan.treasury_points * TOKEN,
    )
    with simulated_chain(terms, (*auditors, *earners[:1])) as chain:
        for actor in (PLAYER, *earners[: plan.claiming]):
            chain.enrol(actor.account)
        chain.fund(earners[0].account, plan.epochs * _QUESTIONS * chain.verifier.question_bond())
        if plan.gate:
            for earner in earners:
                chain.bond(earner.account, TOKEN)
        return QuorumSimulation(chain, plan, auditors, earners).play(behaviour)


def _earners(plan: QuorumPlan) -> tuple[Actor, ...]:
    actors = (Actor(f"account {number}") for number in range(plan.accounts))
    return tuple(sorted(actors, key=lambda actor: actor.account))


def _budget(plan: QuorumPlan) -> int:
    return plan.accounts * POINTS + 2 * LIMITS.points_per_epoch


def _manifest(chain: SimulatedChain) -> Manifest:
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
