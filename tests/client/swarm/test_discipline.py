"""Behaviour on the wire and the application's rating, and their consequences together."""

from __future__ import annotations

import pytest

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.limits import ScoreLimits
from sapo_client.swarm.peer_score import PeerScores, Severity

LIMITS = ScoreLimits()
NOW = 1000.0


class DisciplineHarness:
    """A discipline and the peers that it disconnected."""

    def __init__(self) -> None:
        self.disconnected: list[str] = []
        self.counters = TransportCounters()
        self.discipline = Discipline(PeerScores(), self.counters, self.disconnected.append)

    def fault(self, severity: Severity) -> None:
        self.discipline.blame("peer", severity, NOW)


@pytest.mark.parametrize(
    ("rating", "faults", "score", "allowed"),
    [
        (0.0, [], 0.0, True),
        (5.0, [], 5.0, True),
        (1e9, [], LIMITS.highest_rating, True),
        (-1e9, [], LIMITS.lowest_rating, True),  # a rating alone disconnects no peer
        (-15.0, [Severity.HIGH], -16.0, True),
        (-15.0, [Severity.MID], -20.0, False),
        (0.0, [Severity.MID], -5.0, True),
        (0.0, [Severity.LOW, Severity.LOW], -20.0, False),
        (5.0, [Severity.LOW, Severity.LOW], -15.0, False),  # and a good one does not lift faults
    ],
)
def test_a_rating_and_faults_add_up(
    rating: float, faults: list[Severity], score: float, allowed: bool
) -> None:
    harness = DisciplineHarness()
    harness.discipline.rate({"peer": rating}, NOW)
    for fault in faults:
        harness.fault(fault)
    assert harness.discipline.score("peer", NOW) == score
    assert harness.discipline.allows("peer", NOW) is allowed
    assert harness.disconnected == ([] if allowed else ["peer"])


def test_a_rating_replaces_the_last_one_and_may_disconnect() -> None:
    harness = DisciplineHarness()
    harness.discipline.rate({"peer": 5.0, "other": 1.0}, NOW)
    harness.fault(Severity.LOW)
    harness.discipline.rate({"peer": -15.0}, NOW)
    assert [harness.discipline.score(name, NOW) for name in ("peer", "other")] == [-25.0, 0.0]
    assert harness.disconnected == ["peer"]


def test_floods_are_reported_by_peer_once() -> None:
    harness = DisciplineHarness()
    for peer_id in ("a", "b", "a"):
        harness.discipline.note_flood(peer_id, NOW)
    assert (harness.discipline.take_floods(), harness.discipline.take_floods()) == ({"a": 2, "b": 1}, {})
    assert harness.counters.flood_pauses == 3
    assert harness.discipline.score("a", NOW) == 2 * Severity.HIGH.value
