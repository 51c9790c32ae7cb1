"""Authors that have dialled Sybils alone find honest members of their island, in a simulated siege."""

from __future__ import annotations

from sapo_client.lab.scale.plan import Inhabitant, ScalePlan
from sapo_client.lab.scale.world import ScaleWorld

HIDDEN, SYBILS, OPEN = 12, 22, 2
PLAN = ScalePlan(
    nodes=HIDDEN + SYBILS + OPEN,
    islands=1,
    epochs=1,
    epoch_seconds=40,
    groups_per_second=0.1,
    churn=0.0,
    loss=0.0,
)


class BesiegedWorld(ScaleWorld):
    """An island where of 24 nodes to which one can connect 22 are Sybils."""

    def _settle_people(self) -> list[Inhabitant]:
        return [
            Inhabitant(
                self.plan.seed,
                number,
                is_sybil=HIDDEN <= number < HIDDEN + SYBILS,
                is_behind_nat=number < HIDDEN,
            )
            for number in range(self.plan.nodes)
        ]

    def lonely(self) -> int:
        """Return how many honest nodes are connected with no other one."""
        honest = {peer for peer, one in self.residents.items() if not one.who.is_sybil}
        return sum(honest.isdisjoint(self.residents[peer].node.peers) for peer in honest)


def raise_bug(error: Exception) -> None:
    """Let a bug in a callback end the test."""
    raise error


def test_who_has_dialled_sybils_alone_finds_an_honest_member() -> None:
    world = BesiegedWorld(PLAN, raise_bug)
    lonely: list[int] = []
    world.run(lambda _: lonely.append(world.lonely()))
    assert max(lonely[2:5]) > 0
    assert lonely[-1] == 0
    assert {
        one.node.discipline.scores.score(peer, 1e9)
        for one in world.residents.values()
        for peer in one.node.peers
    } == {0.0}
