"""What a player's auditors do: each conduct attacks one rule of the settlement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sapo_client.lab.quorum.stage import GHOST, POINTS, AuditorConduct, QuorumOutcome, QuorumPlan, play
from sapo_client.ledger.fraud import Equivocation
from sapo_client.node.auditing.agreement import Postable
from sapo_protocol.contributions import Proposal, Share, settle
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, ContentId, Digest

if TYPE_CHECKING:
    from sapo_client.lab.quorum.chain import Actor
    from sapo_client.lab.quorum.stage import QuorumStage

_LYING_EPOCH: Final = 1
"""From which a quorum of liars lies: there are points already."""


class Inflate(AuditorConduct):
    """Tally the own account at the cap, and in its turn propose with as many of these as count."""

    def tally(self, stage: QuorumStage, epoch: int) -> None:
        for liar in stage.liars:
            stage.publish(liar, stage.tally_of(liar, epoch, inflated(stage)))

    def turn(self, stage: QuorumStage, epoch: int, turn: int) -> None:
        if (liar := stage.proposing(epoch, turn)) is not None and stage.chain.state().live is None:
            content_id, proposal = self.proposal(stage, liar, epoch, turn)
            for other in stage.liars:
                stage.publish(other, stage.approval_of(other, content_id, proposal))

    def proposal(self, stage: QuorumStage, liar: Actor, epoch: int, turn: int) -> tuple[ContentId, Proposal]:
        """Publish the proposal that names the liars' tallies and no more honest ones than it must."""
        made = proposal_of(stage, liar, epoch, turn)
        return stage.publish(liar, made), made


class LateTally(AuditorConduct):
    """Publish the only tally after the first proposal, so that no proposal settles all tallies."""

    def look(self, stage: QuorumStage, epoch: int) -> None:
        store = stage.honest[0].contributions
        if store.proposals(epoch) and len(store.tallies(epoch)) == len(stage.honest):
            for liar in stage.liars:
                stage.publish(liar, stage.tally_of(liar, epoch, inflated(stage)))


class SplitTally(AuditorConduct):
    """Give every honest auditor another tally."""

    def tally(self, stage: QuorumStage, epoch: int) -> None:
        for liar in stage.liars:
            for number, seat in enumerate(stage.honest):
                points = {**counted(stage), GHOST.account: number + 1}
                stage.publish(liar, stage.tally_of(liar, epoch, points), [seat])


class SplitProposal(Inflate):
    """In its turn give every honest auditor another proposal."""

    def proposal(self, stage: QuorumStage, liar: Actor, epoch: int, turn: int) -> tuple[ContentId, Proposal]:
        made = [proposal_of(stage, liar, epoch, turn, skip=skip) for skip in range(len(stage.honest))]
        ids = [stage.publish(liar, each, [seat]) for each, seat in zip(made, stage.honest, strict=True)]
        return ids[0], made[0]


class TwoRoots(Inflate):
    """Sign two proposals of its turn."""

    def proposal(self, stage: QuorumStage, liar: Actor, epoch: int, turn: int) -> tuple[ContentId, Proposal]:
        first = proposal_of(stage, liar, epoch, turn, skip=1)
        content_id = stage.publish(liar, first)
        stage.publish(liar, stage.approval_of(liar, content_id, first))
        return super().proposal(stage, liar, epoch, turn)


class StrikeLate(AuditorConduct):
    """Post with just a quorum of signatures, the own one among them, and withdraw that at the window's end.

    It convicts itself of two roots in a turn, bonds again and posts the same root before anybody else acts.
    """

    def __init__(self) -> None:
        self._strikes = 0
        self._posted: Postable | None = None

    def tally(self, stage: QuorumStage, epoch: int) -> None:
        for liar in stage.liars:
            stage.publish(liar, stage.tally_of(liar, epoch, counted(stage)))

    def look(self, stage: QuorumStage, epoch: int) -> None:
        live = stage.chain.live()
        if live is None:
            approve_all(stage, epoch)
            self._post_first(stage, epoch)
        elif stage.is_last_look(live) and self._posted is not None:
            self._strike(stage, live.root)
            self.repeat(stage, self._posted)

    def repeat(self, stage: QuorumStage, posted: Postable) -> None:
        """Bond again and post again, before anybody else acts."""
        stage.chain.bond_auditor(stage.liars[0].account)
        stage.chain.post(stage.liars[0].account, posted)

    def _post_first(self, stage: QuorumStage, epoch: int) -> None:
        own, store = stage.liars[0].account, stage.honest[0].contributions
        for content_id, proposal in store.proposals(epoch).items():
            signed = {each.account: each.signature for each in store.approvals(epoch, content_id)}
            root = store.epoch_root(content_id)
            if root is not None and own in signed and len(signed) >= stage.terms.quorum:
                others = [signed[account] for account in sorted(signed) if account != own]
                signatures = signed[own], *others[: stage.terms.quorum - 1]
                self._posted = Postable(EpochApproval(proposal.turn, root), signatures)
                stage.chain.post(own, self._posted)
                return

    def _strike(self, stage: QuorumStage, root: EpochRoot) -> None:
        self._strikes += 1  # each turn of an epoch is punished once
        pair = [replace(root, archive_digest=Digest(bytes([n]) * Digest.SIZE)) for n in (1, 2)]
        signed = [stage.sign(stage.liars[0], EpochApproval(self._strikes, each)) for each in pair]
        proof = Equivocation(self._strikes, pair[0], pair[1], signed[0], signed[1])
        stage.chain.challenge(stage.liars[0].account, proof)


class Leave(Inflate):
    """Sign what the others propose, and take the bond out in front of the posting."""

    def look(self, stage: QuorumStage, epoch: int) -> None:
        for content_id, proposal in stage.honest[0].contributions.proposals(epoch).items():
            for liar in stage.liars:
                if stage.chain.vault.bonded(liar.account):
                    stage.publish(liar, stage.approval_of(liar, content_id, proposal))
                    stage.chain.leave(liar.account)


@dataclass
class FalseRoot(AuditorConduct):
    """As a quorum, sign and post a root that is no settlement.

    Attributes:
        ghost: points that the player's account gets in an epoch; above the cap they can be proven false.
        stolen: what each honest account loses of its earlier points; the player's account has it then.
        shown: whether its shares are published.
    """

    ghost: int
    stolen: int = 0
    shown: bool = True

    def tally(self, stage: QuorumStage, epoch: int) -> None:
        for liar in stage.liars:
            stage.publish(liar, stage.tally_of(liar, epoch, counted(stage)))

    def turn(self, stage: QuorumStage, epoch: int, turn: int) -> None:
        """Settle the first epoch as it is, and post a false root for every later one."""
        state, liar = stage.chain.state(), stage.proposing(epoch, turn)
        if epoch < _LYING_EPOCH:
            return
        if liar is None or state.live is not None or (state.last is not None and state.last.epoch >= epoch):
            return
        tallies = tuple(sorted(stage.honest[0].contributions.tallies(epoch))[: stage.terms.quorum])
        made = Proposal(liar.node, liar.account, epoch, tallies, self._shares(stage, stage.granted()), turn)
        content_id = stage.publish(liar, made, None if self.shown else [])
        root = replace(made.root(content_id), base_root=state.base_root)
        statement = EpochApproval(turn, root)
        signatures = tuple(stage.sign(each, statement) for each in stage.liars)
        stage.chain.post(liar.account, Postable(statement, signatures))

    def look(self, stage: QuorumStage, epoch: int) -> None:
        """Approve what is proposed for the first epoch, and make the own postings final."""
        if (live := stage.chain.state().live) is not None and live.epoch >= _LYING_EPOCH:
            stage.chain.finalise_in_time(stage.liars[0].account)
        if epoch < _LYING_EPOCH and stage.chain.state().live is None:
            approve_all(stage, epoch)

    def _shares(self, stage: QuorumStage, had: Mapping[Account, int]) -> tuple[Share, ...]:
        ghost, taken = GHOST.account, min(self.stolen, POINTS) * len(stage.earners)
        shares = [Share(a, POINTS, had.get(a, 0) - min(self.stolen, POINTS) + POINTS) for a in stage.earners]
        shares.append(Share(ghost, self.ghost, had.get(ghost, 0) + taken + self.ghost))
        return tuple(sorted((s for s in shares if s.cumulative), key=lambda share: share.account))


class Accuse(AuditorConduct):
    """Accuse an honest account of an equivocation that it has not committed."""

    def tally(self, stage: QuorumStage, epoch: int) -> None:
        for liar in stage.liars:
            stage.publish(liar, stage.tally_of(liar, epoch, counted(stage)))
            stage.chain.accuse(liar.account, stage.earners[0], epoch)

    def look(self, stage: QuorumStage, epoch: int) -> None:
        approve_all(stage, epoch)


def approve_all(stage: QuorumStage, epoch: int) -> None:
    """Let the player's auditors approve every proposal that the honest ones hold."""
    for content_id, proposal in stage.honest[0].contributions.proposals(epoch).items():
        for liar in stage.liars:
            stage.publish(liar, stage.approval_of(liar, content_id, proposal))


def counted(stage: QuorumStage) -> dict[Account, int]:
    """Return what every auditor has counted."""
    return dict.fromkeys(stage.earners, POINTS)


def inflated(stage: QuorumStage) -> dict[Account, int]:
    """Return the same with the player's account at the cap."""
    return {**counted(stage), GHOST.account: stage.terms.points_cap}


def proposal_of(stage: QuorumStage, liar: Actor, epoch: int, turn: int, skip: int = 0) -> Proposal:
    """Return the settlement of the liars' tallies and of as many others as there must be.

    Args:
        skip: honest tallies that are left out, in the order of their ids.
    """
    tallies = stage.honest[0].contributions.tallies(epoch)
    liars = {each.account for each in stage.liars}
    own = [item for item in tallies.items() if item[1].account in liars]
    others = sorted(item for item in tallies.items() if item[1].account not in liars)
    turned = [*others[skip:], *others[:skip]]
    named = dict([*own, *turned][: stage.terms.quorum])
    shares = settle(
        [*named.values()],
        stage.granted(),
        points_per_epoch=stage.terms.points_cap,
        epoch_budget=stage.terms.epoch_budget,
    )
    return Proposal(liar.node, liar.account, epoch, tuple(sorted(named)), shares, turn)


@dataclass(frozen=True)
class QuorumStrategy:
    """A row of the table."""

    name: str
    plan: QuorumPlan
    conduct: type[AuditorConduct] | FalseRoot = AuditorConduct

    def play(self) -> QuorumOutcome:
        """Return what became of it."""
        conduct = self.conduct() if isinstance(self.conduct, type) else self.conduct
        return play(self.plan, conduct)


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
"""Strategies of auditors; of four, one may lie."""
