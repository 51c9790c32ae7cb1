"""Attacks on approvals of the live posting in later turns: they cost no epoch and no honest bond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sapo_client.lab.quorum.simulation import (
    AuditorBehaviour,
    QuorumOutcome,
    QuorumPlan,
    QuorumSimulation,
    play,
)
from sapo_client.lab.quorum.strategies import (
    FalseRoot,
    SplitAndStrike,
    StrikeLate,
    approve_all,
    counted,
)
from sapo_client.node.auditing.agreement import Postable
from sapo_protocol.contributions import Approval, Proposal, Tally, settle
from sapo_protocol.eip712 import EpochApproval
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.settlement import turn_to_propose

pytestmark = pytest.mark.long


class Watched(AuditorBehaviour):
    """Keep the simulation, for what the honest auditors have signed."""

    simulation: QuorumSimulation

    def begin(self, simulation: QuorumSimulation) -> None:
        self.simulation = simulation

    def approvals(self) -> list[Approval]:
        """Return what the honest auditors have signed."""
        return [
            approval
            for auditor in self.simulation.honest
            for epoch in range(self.simulation.plan.epochs)
            for content_id in auditor.contributions.proposals(epoch)
            for approval in auditor.contributions.approvals(epoch, content_id)
            if approval.account == auditor.actor.account
        ]

    def assert_one_root_per_turn(self) -> None:
        signed: dict[tuple[Account, int, int], ContentId] = {}
        for each in self.approvals():
            assert signed.setdefault((each.account, each.epoch, each.turn), each.proposal) == each.proposal

    def later_turns(self) -> int:
        """Return how many approvals are of another turn than their proposal."""
        store = self.simulation.honest[0].contributions
        turns = [(each.turn, store.proposal(each.proposal)) for each in self.approvals()]
        return sum(proposal is not None and turn != proposal.turn for turn, proposal in turns)


def settled(outcome: QuorumOutcome) -> tuple[int, int, int, int]:
    return outcome.final, outcome.counted - outcome.paid, outcome.player_paid, outcome.bonds_lost


class SplitWatched(Watched, SplitAndStrike):
    """``SplitAndStrike`` as it is."""


def test_honest_auditors_approve_the_live_root_once_more() -> None:
    behaviour = SplitWatched()
    outcome = play(QuorumPlan(liars=1, epochs=4), behaviour)
    assert settled(outcome) == (4, 0, 0, 0)
    assert behaviour.later_turns() > 0
    behaviour.assert_one_root_per_turn()


class HiddenTally(Watched, StrikeLate):
    """Propose with a tally that the third auditor has no place for, since it has two others of the author.

    So it cannot check the proposal, and does not approve it in any turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self._named: Tally | None = None

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        liar, third = simulation.liars[0], simulation.honest[2]
        self._named = simulation.tally_of(liar, epoch, counted(simulation))
        others = [
            simulation.tally_of(liar, epoch, {**counted(simulation), simulation.earners[0]: points})
            for points in (1, 2)
        ]
        for each in others:
            simulation.publish(liar, each, [third])
        self._named_id = simulation.publish(liar, self._named, simulation.honest[:2])

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        liar = simulation.proposing(epoch, turn)
        if liar is None or simulation.chain.state().live is not None or self._named is None:
            return
        store = simulation.honest[0].contributions
        honest = {id_: t for id_, t in store.tallies(epoch).items() if t.account != liar.account}
        tallies = {self._named_id: self._named, **dict(sorted(honest.items())[:2])}
        shares = settle(
            [*tallies.values()],
            simulation.final_points(),
            points_per_epoch=simulation.terms.points_cap,
            epoch_budget=simulation.terms.epoch_budget,
        )
        proposal = Proposal(liar.node, liar.account, epoch, tuple(sorted(tallies)), shares, turn)
        content_id = simulation.publish(liar, proposal)
        simulation.publish(liar, simulation.approval_of(liar, content_id, proposal))

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        own, live = simulation.liars[0].account, simulation.chain.live()
        if simulation.chain.state().live is None:
            if not simulation.chain.has_bond(own):
                simulation.chain.bond_auditor(own)
            self._post_first(simulation, epoch)
        elif live is not None and self._posted is not None and simulation.is_last_challenge_step(live):
            self._strike(simulation, live.root)
            self._posted = None


def test_an_auditor_receives_the_tallies_that_the_live_posting_names() -> None:
    behaviour = HiddenTally()
    outcome = play(QuorumPlan(liars=1, epochs=4), behaviour)
    assert settled(outcome) == (4, 0, 0, 0)
    behaviour.assert_one_root_per_turn()


class StrikeAgain(SplitWatched):
    """Sign the root in every turn as well, bond again, and strike the own signature in every step."""

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        super().act(simulation, epoch)
        liar, live = simulation.liars[0], simulation.chain.live()
        if live is None or simulation.chain.state().live is None or self._strikes == 0:
            return
        if not simulation.chain.has_bond(liar.account):
            simulation.chain.bond_auditor(liar.account)
        content_id = ContentId(live.root.archive_digest)
        turn = present_turn(simulation, live.root.epoch)
        signature = simulation.sign(liar, EpochApproval(turn, live.root))
        place = liar.node, liar.account, live.root.epoch
        simulation.publish(liar, Approval(*place, content_id, signature, turn))
        if live.signers & (1 << simulation.auditors.index(liar.account)):
            self._strike(simulation, live.root)


def test_striking_again_in_every_step_costs_bonds_and_delays_nothing() -> None:
    behaviour = StrikeAgain()
    outcome = play(QuorumPlan(liars=1, epochs=4), behaviour)
    assert settled(outcome) == (4, 0, 0, 0)
    behaviour.assert_one_root_per_turn()
    chain = behaviour.simulation.chain
    assert 1 < behaviour._strikes <= 3
    assert sum(chain.gas(auditor.actor.account) for auditor in behaviour.simulation.honest) < 800_000


class StrikeInTheTurn(SplitWatched):
    """Keep the own approval until the others approve the next turn's proposal; then post, and strike at once.

    In the present turn all of them have approved another root than the live one.
    """

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        if (split := self.split(simulation, epoch, turn)) is not None:
            self._kept = epoch, turn, *split[1:]

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        liar = simulation.liars[0]
        if simulation.chain.now_seconds > self._split_seconds:
            simulation.forward(self._later)
            self._later.clear()
        if not simulation.chain.has_bond(liar.account):
            simulation.chain.bond_auditor(liar.account)
        if self._kept is None or simulation.chain.state().live is not None:
            return
        of, turn, content_id, proposal = self._kept
        store = simulation.honest[0].contributions
        approved = {each.turn for id_ in store.proposals(of) for each in store.approvals(of, id_)}
        signed = {each.account: each.signature for each in store.approvals(of, content_id)}
        if max(approved, default=0) > turn and len(signed) >= 2:
            self._kept = None
            statement = proposal.approval(content_id)
            signatures = simulation.sign(liar, statement), *signed.values()
            if simulation.chain.post(liar.account, Postable(statement, signatures)):
                self._strike(simulation, statement.root)

    _kept: tuple[int, int, ContentId, Proposal] | None = None


def test_an_auditor_that_approved_another_root_in_the_turn_waits_for_the_next() -> None:
    behaviour = StrikeInTheTurn()
    outcome = play(QuorumPlan(liars=1, epochs=4), behaviour)
    assert behaviour._strikes > 0
    assert settled(outcome) == (4, 0, 0, 0)
    behaviour.assert_one_root_per_turn()


class Lure(Watched):
    """Post a false root as a quorum, and strike an own signature, so that honest auditors may add theirs."""

    def __init__(self, false: FalseRoot) -> None:
        self._false = false
        self._striking = StrikeLate()
        self._struck: set[int] = set()

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        self._false.tally(simulation, epoch)

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        self._false.turn(simulation, epoch, turn)

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        live = simulation.chain.live()
        if live is not None and live.root.epoch >= 1 and live.posted_at_seconds not in self._struck:
            self._struck.add(live.posted_at_seconds)
            self._striking._strike(simulation, live.root)
        if epoch < 1 and simulation.chain.state().live is None:
            approve_all(simulation, epoch)


@pytest.mark.parametrize("stolen", [0, 12])
@pytest.mark.parametrize("shown", [True, False])
def test_honest_auditors_add_no_signature_to_a_false_root(stolen: int, shown: bool) -> None:
    behaviour = Lure(FalseRoot(512, stolen, shown=shown))
    outcome = play(QuorumPlan(liars=3), behaviour)
    assert behaviour._striking._strikes > 0
    assert (outcome.player_paid, outcome.bonds_lost) == (0, 0)
    false = {each for each in behaviour.simulation.proposed if behaviour.simulation.proposed[each].epoch >= 1}
    assert not false.intersection(each.proposal for each in behaviour.approvals())


def present_turn(simulation: QuorumSimulation, epoch: int) -> int:
    age_seconds = simulation.chain.now_seconds - epoch_start_seconds(simulation.manifest, epoch + 1)
    return turn_to_propose(simulation.manifest, age_seconds)[0]


def test_the_second_approval_is_not_needed_where_all_approved_the_root_in_its_turn() -> None:
    assert replace(play(QuorumPlan(), AuditorBehaviour()), epoch_gas=0) == QuorumOutcome(
        final=3, counted=144, paid=144, player_paid=0, bonds_lost=0, player_bonds_lost=0, epoch_gas=0
    )
