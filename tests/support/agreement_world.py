"""n auditors, some of them dishonest, over an unreliable network and a slow chain; deterministic per seed.

The honest ones run ``Agreement`` with its real stores, admission and signatures. The liars see every message
at once and sign whatever they like. ``python tests/support/agreement_world.py EPOCHS`` prints figures.
"""

from __future__ import annotations

import heapq
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Final

from support.ledger_model import LedgerModel
from support.swarm import Identity, make_certificates, make_chain_manifest

from sapo_client.founding.defaults import challenge_seconds
from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState
from sapo_client.node.auditing.disputes import Dispute, find_fraud, posted_trees
from sapo_client.node.runtime.context import Author
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Approval, Proposal, Tally, parse_approval, parse_tally, settle
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.settlement import grace_seconds, max_faulty, quorum_size, turn_begin_seconds
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import AuditorSet, ContributionAdmission
from sapo_verification.signing.database import SigningDatabase

POINTS_CAP: Final = 16
BUDGET: Final = 10_000
EARNERS: Final = tuple(sorted(Identity(1000 + number).account for number in range(4)))
GHOST: Final = Identity(2000).account
"""An account of the liars, which earned nothing."""

KINDS: Final = {Tally: Kind.TALLY, Proposal: Kind.PROPOSAL, Approval: Kind.APPROVAL}
_LOOK_SECONDS: Final = 1.5
_LIAR_TURNS: Final = 10
"""Turns of an epoch in which the liars act; the later ones only begin where these came to nothing."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Faults of network, auditors and chain, as probabilities per epoch.

    Attributes:
        delay_seconds: longest delay of a message; the specification assumes a quarter of a grace at most.
        slow: the network is slow for a whole epoch: messages take up to twelve times as long.
        crash: of each honest auditor, which is away for up to 40 seconds and restarts with its files.
        outage: the chain takes no transaction for up to 45 seconds.
    """

    delay_seconds: float = 1.5
    slow: float = 0.05
    crash: float = 0.05
    outage: float = 0.05


@dataclass(frozen=True, slots=True)
class AgreementOutcome:
    """Result of an adversarial run.

    Attributes:
        stopped: epochs without a final root.
        outside: accounts' points of final epochs that lie outside the honest counts.
        honest_bonds_lost: bonds of auditors that never lied.
        unexplained: final roots whose proposal no honest auditor holds.
    """

    epochs: int
    stopped: int
    outside: int
    honest_bonds_lost: int
    unexplained: int


class HonestAuditor:
    """An auditor that loses its memory in a crash and keeps its files."""

    def __init__(self, world: AgreementWorld, identity: Identity) -> None:
        self.identity = identity
        self.contributions = ContributionStore(":memory:", world.manifest.swarm_id)
        self.signing = SigningDatabase(":memory:")
        self.up_from_seconds = 0.0
        self.heard: set[ContentId] = set()
        self.judged: EpochRoot | None = None
        self._world = world
        self.admission = ContributionAdmission(
            world.manifest,
            world.certificates,
            self.contributions,
            lambda: AuditorSet(Auditors(world.auditors)),
        )
        self.start()

    def start(self) -> None:
        """Start again from the files."""
        world, identity = self._world, self.identity
        self.agreement = Agreement(
            author=Author(identity.seed, identity.node, identity.account),
            account_key=identity.secret,
            manifest=world.manifest,
            terms=world.terms,
            contributions=self.contributions,
            signing=self.signing,
            wait_seconds=2 * grace_seconds(world.manifest) * world.waits.random() * world.first_waits,
        )

    def receive(self, message: bytes) -> bool:
        """Admit and store a message; return whether it is forwarded."""
        try:
            admitted = self.admission.admit(message, self._world.now)
        except RemoteProtocolError:
            return False
        self.contributions.add(
            admitted.content_id, admitted.kind, admitted.content, message, received_seconds=self._world.now
        )
        return True


class AgreementWorld:
    """One swarm from epoch 0 on.

    Args:
        liars: number of dishonest auditors; the protocol tolerates (n - 1) / 3.
        collude: the dishonest auditors act together to change points; otherwise each acts at random.
        silent: the dishonest auditors send nothing.
        recalled: an epoch that is recalled as soon as it is final; none for no recall.
        hidden: epochs whose first posting is rejected although true: questions about it are not answered.
        held_up: epochs whose honest tallies the network delivers late, and how many graces after the end of
            the next epoch; its first turn begins two graces after that.
        first_waits: whether a process waits before its first approval.

    Attributes:
        proposals_at_recall: how many proposals of that epoch each honest auditor knew at that moment.
    """

    def __init__(
        self,
        seed: int,
        *,
        auditors: int,
        liars: int,
        fault_rates: FaultRates | None = None,
        collude: bool = False,
        silent: bool = False,
        recalled: int | None = None,
        hidden: Collection[int] = (),
        held_up: Mapping[int, float] | None = None,
        first_waits: bool = True,
    ) -> None:
        self._recalled, self._held_up, self._hidden = recalled, held_up or {}, set(hidden)
        self.proposals_at_recall: list[int] = []
        self.rng, self.waits, self.first_waits = random.Random(seed), random.Random(seed), first_waits
        self.manifest: Manifest = make_chain_manifest(epoch_seconds=60)
        identities = sorted((Identity(number) for number in range(1, auditors + 1)), key=lambda i: i.account)
        self.auditors = tuple(identity.account for identity in identities)
        self.terms = AgreementTerms(Auditors(self.auditors).of, quorum_size(auditors), POINTS_CAP, BUDGET)
        self.certificates = make_certificates(self.manifest, *identities)
        chosen = set(self.rng.sample(range(auditors), liars))
        self.liars = [identity for place, identity in enumerate(identities) if place in chosen]
        self.now = float(self.manifest.genesis_seconds)
        self.honest = [HonestAuditor(self, i) for place, i in enumerate(identities) if place not in chosen]
        self.ledger = LedgerModel(
            domain=self.manifest.ledger_domain,
            auditors=self.auditors,
            quorum=self.terms.quorum,
            genesis_seconds=self.manifest.genesis_seconds,
            epoch_seconds=self.manifest.epoch_seconds,
            challenge_seconds=challenge_seconds(self.manifest.epoch_seconds),
            epoch_budget=BUDGET,
        )
        self.counts: dict[int, dict[Account, dict[Account, int]]] = {}
        self.happened: Counter[str] = Counter()
        self._fault_rates, self._collude, self._silent = fault_rates or FaultRates(), collude, silent
        self._delay_seconds, self._outage_until = self._fault_rates.delay_seconds, 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._proposals: dict[int, dict[ContentId, Proposal]] = {}
        self._signatures: dict[tuple[ContentId, int], dict[Account, bytes]] = {}
        self._sent: dict[tuple[ContentId, Account], float] = {}

    def run(self, epochs: int) -> AgreementOutcome:
        """Run a number of epochs including their settlement."""
        for number, auditor in enumerate(self.honest):
            self._at(self.now + _LOOK_SECONDS * number / len(self.honest), self._look_of(auditor))
        for epoch in range(epochs):
            self._at(self._end(epoch), partial(self._begin, epoch))
        until = self._end(epochs + 2)
        while self._events and self._events[0][0] < until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self._outcome(epochs)

    # The course of an epoch

    def _begin(self, epoch: int) -> None:
        """Draw the auditors' counts and the faults during the settlement of the epoch."""
        rng, fault_rates = self.rng, self._fault_rates
        true = {account: rng.randint(4, POINTS_CAP) for account in EARNERS}
        self.counts[epoch] = {
            auditor.identity.account: {a: points - rng.randint(0, 3) for a, points in true.items()}
            for auditor in self.honest
        }
        self._delay_seconds = fault_rates.delay_seconds
        if rng.random() < fault_rates.slow:
            self.happened["slow network"] += 1
            self._delay_seconds *= 12
        if rng.random() < fault_rates.outage:
            self.happened["chain outage"] += 1
            self._outage_until = self.now + rng.uniform(0, 45)
        for auditor in self.honest:
            if rng.random() < fault_rates.crash:
                self._at(self.now + rng.uniform(0, 40), partial(self._crash, auditor))
        if not self._silent:
            self._at(self.now + rng.uniform(6, 11), lambda: self._lie_in_tallies(epoch))
            for turn in range(_LIAR_TURNS):
                begin = turn_begin_seconds(self.manifest, turn)
                self._at(self.now + begin + rng.uniform(0, 5), partial(self._lie_in_turn, epoch, turn))

    def _look_of(self, auditor: HonestAuditor) -> Callable[[], None]:
        def look() -> None:
            self._at(self.now + _LOOK_SECONDS, look)
            if self.now >= auditor.up_from_seconds:
                self._act(auditor)

        return look

    def _act(self, auditor: HonestAuditor) -> None:
        """Do what ``Auditor`` and the watchtower do periodically, without questions."""
        state = self.ledger.state()
        for root in (state.live, state.last):
            if root is not None:
                self._obtain(auditor, root)
        unsettled = auditor.agreement.unsettled(self.now, state.last)
        if unsettled and not auditor.agreement.has_tallied(unsettled[-1]):
            self._tally(auditor, unsettled[-1])
        step = auditor.agreement.step(self.now, state)
        for envelope in step.messages:
            self._publish(auditor, envelope)
        for postable in step.postings:
            self._transact(partial(self._post, postable.statement, postable.signatures))
        if state.live is not None:
            self._watch(auditor, state)
        auditor.contributions.forget(self._epoch() - 16)

    def _watch(self, auditor: HonestAuditor, state: ChainState) -> None:
        """Reject a live posting that is provably false, or make it final after its window."""
        assert state.live is not None
        is_new, auditor.judged = auditor.judged != state.live, state.live
        dispute = Dispute(state.live, state.last, POINTS_CAP)
        if is_new and find_fraud(dispute, posted_trees(dispute, auditor.contributions)) is not None:
            self.happened["rejected"] += 1
            self.ledger.reject()
        elif state.live.epoch in self._hidden:
            self._hidden.remove(state.live.epoch)
            self.ledger.hide()
        elif self.now >= self.ledger.posted_seconds + self.ledger.challenge_seconds:
            self._transact(self._finalise)

    def _finalise(self) -> bool:
        is_final = self.ledger.finalise(self.now)
        if is_final and self.ledger.final[-1].epoch == self._recalled:
            self.ledger.recall()
            self.proposals_at_recall = self.proposals_of(self._recalled)
        return is_final

    def proposals_of(self, epoch: int) -> list[int]:
        """Return how many proposals of an epoch each honest auditor knows."""
        return [len(auditor.contributions.proposals(epoch)) for auditor in self.honest]

    def _tally(self, auditor: HonestAuditor, epoch: int) -> None:
        if epoch not in self.counts or self.now < self._end(epoch) + grace_seconds(self.manifest):
            return
        counts = self.counts[epoch][auditor.identity.account]
        points = tuple(sorted((account, points) for account, points in counts.items() if points))
        self._publish(auditor, auditor.agreement.tally(epoch, points, merkle.EMPTY_ROOT, self.now))

    def _crash(self, auditor: HonestAuditor) -> None:
        """End a process, perhaps between writing and sending; after its restart it requests from all."""
        self.happened["crash"] += 1
        if self.rng.random() < 0.5:
            state = self.ledger.state()
            auditor.agreement.step(self.now, state)  # stored, and not sent
        auditor.up_from_seconds = self.now + self.rng.uniform(1, 40)

        def restart() -> None:
            auditor.start()
            for other in self.honest:
                for source, target in ((other, auditor), (auditor, other)):
                    for message in source.contributions.envelopes(max(0, self._epoch() - 16)):
                        target.receive(message)

        self._at(auditor.up_from_seconds, restart)

    def _obtain(self, auditor: HonestAuditor, root: EpochRoot) -> None:
        """Fetch the proposal behind a posting, and the tallies that it names, from any node that has them."""
        proposal = ContentId(root.archive_digest)
        auditor.contributions.note_posted(root.epoch, proposal, is_final=True)
        if auditor.contributions.has(proposal):
            return
        for other in self.honest:
            if self.now >= other.up_from_seconds and other.contributions.has(proposal):
                for message in other.contributions.envelopes(root.epoch):
                    auditor.receive(message)

    # The network

    def _publish(self, auditor: HonestAuditor, envelope: SignedEnvelope) -> None:
        auditor.heard.add(envelope.content_id)
        self._overhear(envelope)
        self._forward(envelope, [other for other in self.honest if other is not auditor])

    def _forward(self, envelope: SignedEnvelope, receivers: Sequence[HonestAuditor]) -> None:
        message, begin = envelope.to_bytes(), self._leaves(envelope)
        for receiver in receivers:
            if envelope.content_id not in receiver.heard:
                delay = self.rng.uniform(0.05, self._delay_seconds)
                self._at(begin + delay, self._delivery(receiver, envelope, message))

    def _leaves(self, envelope: SignedEnvelope) -> float:
        """Return the time at which the network delivers a message."""
        if envelope.kind is not Kind.TALLY:
            return self.now
        epoch = parse_tally(envelope.payload).epoch
        if (graces := self._held_up.get(epoch)) is None:
            return self.now
        return max(self.now, self._end(epoch + 1) + graces * grace_seconds(self.manifest))

    def _delivery(
        self, receiver: HonestAuditor, envelope: SignedEnvelope, message: bytes
    ) -> Callable[[], None]:
        def deliver() -> None:
            if self.now < receiver.up_from_seconds or envelope.content_id in receiver.heard:
                return
            receiver.heard.add(envelope.content_id)
            if receiver.receive(message):
                self._forward(envelope, [other for other in self.honest if other is not receiver])

        return deliver

    def _overhear(self, envelope: SignedEnvelope) -> None:
        """Give the dishonest auditors a copy of a sent message: they need it to post and to accuse."""
        if envelope.kind is Kind.APPROVAL:
            approval = parse_approval(envelope.payload)
            place = approval.proposal, approval.turn
            self._signatures.setdefault(place, {})[approval.account] = approval.signature
        elif envelope.kind is Kind.PROPOSAL:
            for auditor in self.honest:
                if (proposal := auditor.contributions.proposal(envelope.content_id)) is not None:
                    self._proposals.setdefault(proposal.epoch, {})[envelope.content_id] = proposal
                    return

    # The chain

    def _transact(self, action: Callable[[], object]) -> None:
        """Act on the chain once it accepts the transaction."""
        delay = self.rng.uniform(0.5, 6)
        self._at(max(self.now + delay, self._outage_until), action)

    def _post(self, statement: EpochApproval, signatures: Sequence[bytes]) -> None:
        is_taken = self.ledger.post(self.now, statement, signatures)
        self.happened["posted" if is_taken else "post refused"] += 1
        if self.proposals_at_recall and statement.root.epoch == self._recalled:
            self.happened["posted after its recall"] += 1

    # The liars

    def _lie_in_tallies(self, epoch: int) -> None:
        """Publish tallies: false, late, to some only, or a second one to all."""
        cap = POINTS_CAP
        for liar in self.liars:
            wild = {account: self.rng.choice((0, 1, cap, 2**40)) for account in EARNERS}
            most = {**dict.fromkeys(EARNERS, 0), GHOST: cap}
            choice = "one" if self._collude else self.rng.choice(("one", "late", "some", "split", "none"))
            self.happened[f"tally to {choice}"] += 1
            points = most if self._collude or self.rng.random() < 0.3 else wild
            envelope = self._seal(liar, _tally(liar, epoch, points))
            if choice == "one":
                self._forward(envelope, self.honest)
            elif choice == "late":
                moment = self.now + self.rng.uniform(0, 40)
                self._at(moment, partial(self._forward, envelope, self.honest))
            elif choice == "some":
                self._forward(envelope, self._some())
            elif choice == "split":
                for number, receiver in enumerate(self.honest):
                    other = _tally(liar, epoch, {**points, GHOST: number + 1})
                    self._forward(self._seal(liar, other), [receiver])

    def _lie_in_turn(self, epoch: int, turn: int) -> None:
        """Propose, approve and post at random, if the epoch is not settled."""
        state = self.ledger.state()
        if state.last is not None and state.last.epoch >= epoch:
            return
        for liar in self.liars:
            if self.auditors[(epoch + turn) % len(self.auditors)] == liar.account:
                self._lie_as_proposer(liar, epoch, turn)
            if self.rng.random() < 0.1:
                self.ledger.leave(liar.account)  # before a posting that contains its signature
                self.happened["left"] += 1
            elif self.rng.random() < 0.5:
                self.ledger.bond(liar.account)
        for content_id, proposal in [*self._proposals.get(epoch, {}).items()]:
            for liar in self.liars:
                if self._collude or self.rng.random() < 0.5:
                    self._approve(liar, content_id, proposal)
            self._try_to_post(content_id, proposal)
        self._accuse(epoch)

    def _lie_as_proposer(self, liar: Identity, epoch: int, turn: int) -> None:
        """Send nothing, a true proposal, or different proposals to different auditors."""
        source = self.rng.choice(self.honest).contributions
        tallies = list(source.tallies(epoch).items())
        previous = self._previous(source)
        if previous is None or len(tallies) < self.terms.quorum:
            return
        choice = "kind" if self._collude else self.rng.choice(("none", "true", "false", "split", "split"))
        self.happened[f"proposes {choice}"] += 1
        for _ in range({"none": 0, "split": 3}.get(choice, 1)):
            own = [entry for entry in tallies if entry[1].account in {i.account for i in self.liars}]
            rest = [entry for entry in tallies if entry not in own]
            size = self.terms.quorum if self._collude else self.rng.randint(self.terms.quorum, len(tallies))
            taken = [*own, *self.rng.sample(rest, len(rest))][:size]
            if not self._collude and self.rng.random() < 0.5:
                taken = self.rng.sample(tallies, size)
            shares = settle(
                [tally for _, tally in taken], previous, points_per_epoch=POINTS_CAP, epoch_budget=BUDGET
            )
            if choice == "false":
                shares = tuple(replace(share, cumulative=share.cumulative + 1) for share in shares)
            ids = tuple(sorted(content_id for content_id, _ in taken))
            proposal = Proposal(liar.node, liar.account, epoch, ids, shares, turn)
            envelope = self._seal(liar, proposal)
            self._proposals.setdefault(epoch, {})[envelope.content_id] = proposal
            self._forward(envelope, self._some() if choice == "split" else self.honest)

    def _approve(self, liar: Identity, content_id: ContentId, proposal: Proposal) -> None:
        digest = proposal.approval(content_id).digest(self.manifest.ledger_domain)
        signature = secp256k1.sign(liar.secret, digest)
        self._signatures.setdefault((content_id, proposal.turn), {})[liar.account] = signature
        place = liar.node, liar.account, proposal.epoch
        if self.rng.random() < 0.7:
            approval = Approval(*place, content_id, signature, proposal.turn)
            self._forward(self._seal(liar, approval), self._some())

    def _try_to_post(self, content_id: ContentId, proposal: Proposal) -> None:
        """Post any root with a quorum of signatures, also one that honest auditors have abandoned."""
        signatures = self._signatures.get((content_id, proposal.turn), {})
        if len(signatures) >= self.terms.quorum and self.rng.random() < 0.5:
            ordered = [signature for _, signature in sorted(signatures.items())]
            self._transact(lambda: self._post(proposal.approval(content_id), ordered))

    def _accuse(self, epoch: int) -> None:
        """Prove equivocations: of dishonest auditors, to remove a posting, and of honest ones if any."""
        first: dict[tuple[Account, int], tuple[EpochApproval, bytes]] = {}
        for (content_id, turn), signatures in [*self._signatures.items()]:
            proposal = self._proposals.get(epoch, {}).get(content_id)
            if proposal is None:
                continue
            statement = EpochApproval(turn, proposal.root(content_id))
            for account, signature in signatures.items():
                other = first.setdefault((account, turn), (statement, signature))
                is_own = account not in {auditor.identity.account for auditor in self.honest}
                if other[0] != statement and (not is_own or self.rng.random() < 0.3):
                    pair = other[1], signature
                    self._transact(partial(self.ledger.prove_equivocation, other[0], statement, pair))
                    self.happened["accused"] += 1

    def _previous(self, source: ContributionStore) -> Mapping[Account, int] | None:
        if not self.ledger.final:
            return {}
        proposal = source.proposal(ContentId(self.ledger.final[-1].archive_digest))
        return {s.account: s.cumulative for s in proposal.shares} if proposal else None

    def _seal(self, author: Identity, message: Tally | Proposal | Approval) -> SignedEnvelope:
        return seal(KINDS[type(message)], self.manifest.swarm_id, message.to_payload(), author.seed)

    def _some(self) -> list[HonestAuditor]:
        return self.rng.sample(self.honest, self.rng.randint(1, len(self.honest)))

    # The judgement

    def _outcome(self, epochs: int) -> AgreementOutcome:
        final = {root.epoch: root for root in self.ledger.final}
        proposals = {epoch: self._behind(root) for epoch, root in final.items()}
        honest = {auditor.identity.account for auditor in self.honest}
        return AgreementOutcome(
            epochs=epochs,
            stopped=sum(epoch not in final for epoch in range(epochs)),
            outside=sum(self._outside(epoch, p) for epoch, p in proposals.items() if p is not None),
            honest_bonds_lost=sum(self.ledger.losses().get(account, 0) for account in honest),
            unexplained=sum(proposal is None for proposal in proposals.values()),
        )

    def _behind(self, root: EpochRoot) -> Proposal | None:
        for auditor in self.honest:
            proposal = auditor.contributions.proposal(ContentId(root.archive_digest))
            if proposal is not None and proposal.root(ContentId(root.archive_digest)) == root:
                return proposal
        return None

    def _outside(self, epoch: int, proposal: Proposal) -> int:
        granted = {share.account: share.points for share in proposal.shares}
        counts = self.counts[epoch].values()
        return sum(
            not min(c.get(a, 0) for c in counts) <= granted.get(a, 0) <= max(c.get(a, 0) for c in counts)
            for a in (*EARNERS, GHOST)
        )

    def _epoch(self) -> int:
        return int((self.now - self.manifest.genesis_seconds) // self.manifest.epoch_seconds)

    def _end(self, epoch: int) -> float:
        return epoch_start_seconds(self.manifest, epoch + 1)

    def _at(self, seconds: float, event: Callable[[], object]) -> None:
        heapq.heappush(self._events, (seconds, next(self._numbers), event))


def _tally(author: Identity, epoch: int, points: Mapping[Account, int]) -> Tally:
    return Tally(
        node=author.node,
        account=author.account,
        epoch=epoch,
        points=tuple(sorted(points.items())),
        evidence_root=merkle.EMPTY_ROOT,
    )


def worlds(auditors: int) -> Iterator[tuple[str, AgreementWorld]]:
    """Yield runs with as many dishonest auditors as the protocol tolerates, and with one more."""
    most = max_faulty(auditors)
    create = partial(AgreementWorld, auditors, auditors=auditors)
    yield f"{most} liars at random", create(liars=most)
    yield f"{most} liars as one", create(liars=most, collude=True)
    yield f"{most + 1} silent", create(liars=most + 1, silent=True)
    yield f"{most + 1} liars as one", create(liars=most + 1, collude=True)


def main(epochs: int) -> None:
    """Print the results of a number of epochs of every kind of run."""
    for auditors in (4, 7, 10):
        for name, world in worlds(auditors):
            began = time.process_time()
            print(f"{auditors} auditors, {name}:", world.run(epochs), flush=True)
            print(
                f"    {time.process_time() - began:.0f} s", dict(sorted(world.happened.items())), flush=True
            )


if __name__ == "__main__":
    main(int(sys.argv[1]))
