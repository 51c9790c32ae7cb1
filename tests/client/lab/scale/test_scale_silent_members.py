"""Authors connected only to Sybils find honest members of their island, in a simulated eclipse attack."""

from __future__ import annotations

from sapo_client.lab.scale.plan import Participant, ScalePlan
from sapo_client.lab.scale.simulation import ScaleSimulation

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


class EclipsedSimulation(ScaleSimulation):
    """An island on which 22 of the 24 nodes that accept connections are Sybils."""

    def _create_participants(self) -> list[Participant]:
        return [
            Participant(
                self.plan.seed,
                number,
                is_sybil=HIDDEN <= number < HIDDEN + SYBILS,
                is_behind_nat=number < HIDDEN,
            )
            for number in range(self.plan.nodes)
        ]

    def isolated(self) -> int:
        """Return the number of honest nodes without an honest peer."""
        honest = {peer for peer, one in self.nodes.items() if not one.participant.is_sybil}
        return sum(honest.isdisjoint(self.nodes[peer].transport.peers) for peer in honest)


def raise_bug(error: Exception) -> None:
    """Fail the test on an error in a callback."""
    raise error


def test_a_node_connected_only_to_sybils_finds_an_honest_member() -> None:
    simulation = EclipsedSimulation(PLAN, raise_bug)
    isolated: list[int] = []
    simulation.run(lambda _: isolated.append(simulation.isolated()))
    assert max(isolated[2:5]) > 0
    assert isolated[-1] == 0
    assert {
        one.transport.discipline.scores.score(peer, 1e9)
        for one in simulation.nodes.values()
        for peer in one.transport.peers
    } == {0.0}
