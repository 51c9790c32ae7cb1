"""Strategies of dishonest auditors; each one attacks one rule of the settlement.

All dishonest auditors belong to one player and act together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sapo_client.lab.quorum.simulation import (
    PLAYER,
    POINTS,
    AuditorBehaviour,
    QuorumOutcome,
    QuorumPlan,
    play,
)
from sapo_client.ledger.fraud import Equivocation
from sapo_client.node.auditing.agreement import Postable
from sapo_protocol.contributions import Approval, Proposal, Share, settle
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.identifiers import Account, ContentId, Digest

if TYPE_CHECKING:
    from sapo_client.lab.quorum.chain import Actor
    from sapo_client.lab.quorum.simulation import QuorumSimulation

_FIRST_FALSE_EPOCH: Final = 1
"""First epoch for which a dishonest quorum posts a false root: earlier points exist by then."""


class Inflate(AuditorBehaviour):
    """Tally the own account at the cap, and propose in its turn with as many of these tallies as possible."""

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        for liar in simulation.liars:
            simulation.publish(liar, simulation.tally_of(liar, epoch, inflated(simulation)))

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        if (liar := simulation.proposing(epoch, turn)) is not None and simulation.chain.state().live is None:
            content_id, proposal = self.proposal(simulation, liar, epoch, turn)
            for other in simulation.liars:
                simulation.publish(other, simulation.approval_of(other, content_id, proposal))

    def proposal(
        self, simulation: QuorumSimulation, liar: Actor, epoch: int, turn: int
    ) -> tuple[ContentId, Proposal]:
        """Publish a proposal that names the liars' tallies and as few honest ones as the rules allow."""
        made = proposal_of(simulation, liar, epoch, turn)
        return simulation.publish(liar, made), made


class LateTally(AuditorBehaviour):
    """Publish the tally after the first proposal, so that no proposal settles all tallies."""

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        store = simulation.honest[0].contributions
        if store.proposals(epoch) and len(store.tallies(epoch)) == len(simulation.honest):
            for liar in simulation.liars:
                simulation.publish(liar, simulation.tally_of(liar, epoch, inflated(simulation)))


class SplitTally(AuditorBehaviour):
    """Send a different tally to every honest auditor."""

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        for liar in simulation.liars:
            for number, auditor in enumerate(simulation.honest):
                points = {**counted(simulation), PLAYER.account: number + 1}
                simulation.publish(liar, simulation.tally_of(liar, epoch, points), [auditor])


class SplitProposal(Inflate):
    """Send a different proposal to every honest auditor in its turn."""

    def proposal(
        self, simulation: QuorumSimulation, liar: Actor, epoch: int, turn: int
    ) -> tuple[ContentId, Proposal]:
        made = [
            proposal_of(simulation, liar, epoch, turn, skip=skip) for skip in range(len(simulation.honest))
        ]
        ids = [
            simulation.publish(liar, each, [auditor])
            for each, auditor in zip(made, simulation.honest, strict=True)
        ]
        return ids[0], made[0]


class TwoRoots(Inflate):
    """Sign two proposals in one turn."""

    def proposal(
        self, simulation: QuorumSimulation, liar: Actor, epoch: int, turn: int
    ) -> tuple[ContentId, Proposal]:
        first = proposal_of(simulation, liar, epoch, turn, skip=1)
        content_id = simulation.publish(liar, first)
        simulation.publish(liar, simulation.approval_of(liar, content_id, first))
        return super().proposal(simulation, liar, epoch, turn)


class StrikeLate(AuditorBehaviour):
    """Post with exactly a quorum of signatures, its own included, and remove its own at the window's end.

    The auditor proves its own equivocation, bonds again and posts the same root before any other one acts.
    """

    def __init__(self) -> None:
        self._strikes = 0
        self._posted: Postable | None = None

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        for liar in simulation.liars:
            simulation.publish(liar, simulation.tally_of(liar, epoch, counted(simulation)))

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        live = simulation.chain.live()
        if live is None:
            approve_all(simulation, epoch)
            self._post_first(simulation, epoch)
        elif simulation.is_last_challenge_step(live) and self._posted is not None:
            self._strike(simulation, live.root)
            self.repeat(simulation, self._posted)

    def repeat(self, simulation: QuorumSimulation, posted: Postable) -> None:
        """Bond again and post again, before any other auditor acts."""
        simulation.chain.bond_auditor(simulation.liars[0].account)
        simulation.chain.post(simulation.liars[0].account, posted)

    def _post_first(self, simulation: QuorumSimulation, epoch: int) -> None:
        own, store = simulation.liars[0].account, simulation.honest[0].contributions
        for content_id, proposal in store.proposals(epoch).items():
            signed = {each.account: each.signature for each in store.approvals(epoch, content_id)}
            root = store.epoch_root(content_id)
            if root is not None and own in signed and len(signed) >= simulation.terms.quorum:
                others = [signed[account] for account in sorted(signed) if account != own]
                signatures = signed[own], *others[: simulation.terms.quorum - 1]
                self._posted = Postable(EpochApproval(proposal.turn, root), signatures)
                simulation.chain.post(own, self._posted)
                return

    def _strike(self, simulation: QuorumSimulation, root: EpochRoot) -> None:
        self._strikes += 1  # each turn of an epoch is punished once
        pair = [replace(root, archive_digest=Digest(bytes([n]) * Digest.SIZE)) for n in (1, 2)]
        signed = [simulation.sign(simulation.liars[0], EpochApproval(self._strikes, each)) for each in pair]
        proof = Equivocation(self._strikes, pair[0], pair[1], signed[0], signed[1])
        simulation.chain.challenge(simulation.liars[0].account, proof)


class SplitAndStrike(StrikeLate):
    """Send one proposal to two of the others and another one to the third, and approve the first.

    It posts the first with a quorum of signatures, its own among them, and convicts itself at the end of the
    window. The third auditor has approved another root in that turn, so no quorum of that turn can complete
    the posting.
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: list[SignedEnvelope] = []
        self._split_seconds = 0.0

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        if (split := self.split(simulation, epoch, turn)) is not None:
            self.whisper(simulation, simulation.approval_of(*split), slice(2))

    def split(
        self, simulation: QuorumSimulation, epoch: int, turn: int
    ) -> tuple[Actor, ContentId, Proposal] | None:
        """Send one proposal to two of the others and another one to the third; return proposer and first.

        None where it is not this auditor's turn, or a posting is live.
        """
        liar = simulation.proposing(epoch, turn)
        if liar is None or simulation.chain.state().live is not None:
            return None
        first, second = (proposal_of(simulation, liar, epoch, turn, skip=skip) for skip in (0, 1))
        content_id = self.whisper(simulation, first, slice(2))
        self.whisper(simulation, second, slice(2, None))
        self._split_seconds = simulation.chain.now_seconds
        return liar, content_id, first

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        if simulation.chain.now_seconds > self._split_seconds:  # gossip takes a step
            simulation.forward(self._later)
            self._later.clear()
        own, live = simulation.liars[0].account, simulation.chain.live()
        if simulation.chain.state().live is None:
            if not simulation.chain.has_bond(own):
                simulation.chain.bond_auditor(own)
            self._post_first(simulation, epoch)
        elif (
            live is not None
            and self._posted is not None
            and live.root == self._posted.statement.root
            and simulation.is_last_challenge_step(live)
        ):
            self._strike(simulation, live.root)
            self._posted = None

    def whisper(self, simulation: QuorumSimulation, message: Proposal | Approval, whom: slice) -> ContentId:
        """Send a message to some of the honest auditors, which receive it a step before all others."""
        kind = Kind.PROPOSAL if isinstance(message, Proposal) else Kind.APPROVAL
        liar = simulation.liars[0]
        envelope = seal(kind, simulation.manifest.swarm_id, message.to_payload(), liar.seed)
        for auditor in simulation.honest[whom]:
            auditor.receive(envelope.to_bytes(), ())
        self._later.append(envelope)
        return envelope.content_id


class Leave(Inflate):
    """Sign others' proposals, and withdraw the bond just before the posting."""

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        for content_id, proposal in simulation.honest[0].contributions.proposals(epoch).items():
            for liar in simulation.liars:
                if simulation.chain.vault.bonded(liar.account):
                    simulation.publish(liar, simulation.approval_of(liar, content_id, proposal))
                    simulation.chain.leave(liar.account)


@dataclass
class FalseRoot(AuditorBehaviour):
    """Sign and post, as a quorum, a root that is not the settlement of the tallies.

    Attributes:
        player_points: points of the player's account in an epoch; above the cap they can be proven false.
        stolen: earlier points moved from each honest account to the player's account.
        shown: whether its shares are published.
    """

    player_points: int
    stolen: int = 0
    shown: bool = True

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        for liar in simulation.liars:
            simulation.publish(liar, simulation.tally_of(liar, epoch, counted(simulation)))

    def turn(self, simulation: QuorumSimulation, epoch: int, turn: int) -> None:
        """Settle the first epoch correctly, and post a false root for every later one."""
        state, liar = simulation.chain.state(), simulation.proposing(epoch, turn)
        if epoch < _FIRST_FALSE_EPOCH:
            return
        if liar is None or state.live is not None or (state.last is not None and state.last.epoch >= epoch):
            return
        tallies = tuple(sorted(simulation.honest[0].contributions.tallies(epoch))[: simulation.terms.quorum])
        made = Proposal(
            liar.node, liar.account, epoch, tallies, self._shares(simulation, simulation.final_points()), turn
        )
        content_id = simulation.publish(liar, made, None if self.shown else [])
        root = replace(made.root(content_id), base_root=state.base_root)
        statement = EpochApproval(turn, root)
        signatures = tuple(simulation.sign(each, statement) for each in simulation.liars)
        simulation.chain.post(liar.account, Postable(statement, signatures))

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        """Approve proposals for the first epoch, and make the own postings final."""
        if (live := simulation.chain.state().live) is not None and live.epoch >= _FIRST_FALSE_EPOCH:
            simulation.chain.finalise_in_time(simulation.liars[0].account)
        if epoch < _FIRST_FALSE_EPOCH and simulation.chain.state().live is None:
            approve_all(simulation, epoch)

    def _shares(self, simulation: QuorumSimulation, had: Mapping[Account, int]) -> tuple[Share, ...]:
        player, taken = PLAYER.account, min(self.stolen, POINTS) * len(simulation.earners)
        shares = [
            Share(a, POINTS, had.get(a, 0) - min(self.stolen, POINTS) + POINTS) for a in simulation.earners
        ]
        shares.append(Share(player, self.player_points, had.get(player, 0) + taken + self.player_points))
        return tuple(sorted((s for s in shares if s.cumulative), key=lambda share: share.account))


class Accuse(AuditorBehaviour):
    """Accuse an honest account of an equivocation that it has not committed."""

    def tally(self, simulation: QuorumSimulation, epoch: int) -> None:
        for liar in simulation.liars:
            simulation.publish(liar, simulation.tally_of(liar, epoch, counted(simulation)))
            simulation.chain.accuse(liar.account, simulation.earners[0], epoch)

    def act(self, simulation: QuorumSimulation, epoch: int) -> None:
        approve_all(simulation, epoch)


def approve_all(simulation: QuorumSimulation, epoch: int) -> None:
    """Let the player's auditors approve every proposal that honest auditors have received."""
    for content_id, proposal in simulation.honest[0].contributions.proposals(epoch).items():
        for liar in simulation.liars:
            simulation.publish(liar, simulation.approval_of(liar, content_id, proposal))


def counted(simulation: QuorumSimulation) -> dict[Account, int]:
    """Return the points that every honest auditor has counted."""
    return dict.fromkeys(simulation.earners, POINTS)


def inflated(simulation: QuorumSimulation) -> dict[Account, int]:
    """Return the same with the player's account at the cap."""
    return {**counted(simulation), PLAYER.account: simulation.terms.points_cap}


def proposal_of(simulation: QuorumSimulation, liar: Actor, epoch: int, turn: int, skip: int = 0) -> Proposal:
    """Return the settlement of the liars' tallies and the smallest possible number of others.

    Args:
        skip: number of honest tallies to leave out, in the order of their ids.
    """
    tallies = simulation.honest[0].contributions.tallies(epoch)
    liars = {each.account for each in simulation.liars}
    own = [item for item in tallies.items() if item[1].account in liars]
    others = sorted(item for item in tallies.items() if item[1].account not in liars)
    turned = [*others[skip:], *others[:skip]]
    named = dict([*own, *turned][: simulation.terms.quorum])
    shares = settle(
        [*named.values()],
        simulation.final_points(),
        points_per_epoch=simulation.terms.points_cap,
        epoch_budget=simulation.terms.epoch_budget,
    )
    return Proposal(liar.node, liar.account, epoch, tuple(sorted(named)), shares, turn)


@dataclass(frozen=True)
class QuorumStrategy:
    """A row of the table: a plan and the behaviour of the dishonest auditors."""

    name: str
    plan: QuorumPlan
    behaviour: type[AuditorBehaviour] | FalseRoot = AuditorBehaviour

    def play(self) -> QuorumOutcome:
        """Return the outcome of the simulation."""
        behaviour = self.behaviour() if isinstance(self.behaviour, type) else self.behaviour
        return play(self.plan, behaviour)


_ONE, _TWO, _THREE = (QuorumPlan(liars=liars) for liars in (1, 2, 3))
_CAP: Final = 512

QUORUM_STRATEGIES: Final = (
    QuorumStrategy("four honest auditors", QuorumPlan()),
    QuorumStrategy("nobody makes a posting final for two epochs", QuorumPlan(finalised_from=2)),
    QuorumStrategy("1,025 accounts", QuorumPlan(accounts=1025, epochs=2)),
    QuorumStrategy("a treasury with half of what was earned", QuorumPlan(treasury_points=72)),
    QuorumStrategy("1 of 4 is silent", _ONE),
    QuorumStrategy("1 of 4 tallies after the first proposal", _ONE, LateTally),
    QuorumStrategy("1 of 4 gives each another tally", _ONE, SplitTally),
    QuorumStrategy("1 of 4 proposes with its own tally", _ONE, Inflate),
    QuorumStrategy("1 of 4 gives each another proposal", _ONE, SplitProposal),
    QuorumStrategy("1 of 4 signs two roots in a turn", _ONE, TwoRoots),
    QuorumStrategy("1 of 4 strikes each posting at its window's end", replace(_ONE, epochs=6), StrikeLate),
    QuorumStrategy("1 of 4 splits the others and then strikes", replace(_ONE, epochs=6), SplitAndStrike),
    QuorumStrategy("1 of 4 takes its bond out in front of a posting", _ONE, Leave),
    QuorumStrategy("2 of 4 are silent", _TWO),
    QuorumStrategy("2 of 4 propose with their own tallies", _TWO, Inflate),
    QuorumStrategy("3 of 4: points above the cap", _THREE, FalseRoot(_CAP + 1)),
    QuorumStrategy("3 of 4: the others' earlier points", _THREE, FalseRoot(_CAP, POINTS)),
    QuorumStrategy("3 of 4: hidden leaves, an account asks", _THREE, FalseRoot(_CAP, shown=False)),
    QuorumStrategy(
        "3 of 4: hidden leaves, nobody asks", replace(_THREE, asking=False), FalseRoot(_CAP, shown=False)
    ),
    QuorumStrategy("2 of 4 accuse an honest account", replace(_TWO, gate=True), Accuse),
    QuorumStrategy("3 of 4 accuse an honest account", replace(_THREE, gate=True), Accuse),
)
"""The simulated strategies; the settlement tolerates one dishonest auditor of four."""
