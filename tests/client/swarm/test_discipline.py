"""Behaviour on the wire and the application's rating: what they lead to together."""

from __future__ import annotations

import pytest

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.limits import ScoreLimits
from sapo_client.swarm.peer_score import PeerScores, Severity

LIMITS = ScoreLimits()
NOW = 1000.0


class Court:
    """A discipline and whom it let go."""

    def __init__(self) -> None:
        self.expelled: list[str] = []
        self.counters = TransportCounters()
        self.discipline = Discipline(PeerScores(), self.counters, self.expelled.append)

    def fault(self, severity: Severity) -> None:
        self.discipline.blame("peer", severity, NOW)


@pytest.mark.parametrize(
    ("rating", "faults", "score", "allowed"),
    [
        (0.0, [], 0.0, True),
        (5.0, [], 5.0, True),
        (1e9, [], LIMITS.highest_rating, True),
        (-1e9, [], LIMITS.lowest_rating, True),  # an opinion alone cuts off nobody
        (-15.0, [Severity.HIGH], -16.0, True),
        (-15.0, [Severity.MID], -20.0, False),
        (0.0, [Severity.MID], -5.0, True),
        (0.0, [Severity.LOW, Severity.LOW], -20.0, False),
        (5.0, [Severity.LOW, Severity.LOW], -15.0, False),  # and excuses nothing
    ],
)
def test_a_rating_and_faults_add_up(
    rating: float, faults: list[Severity], score: float, allowed: bool
) -> None:
    court = Court()
    court.discipline.rate({"peer": rating}, NOW)
    for fault in faults:
        court.fault(fault)
    assert court.discipline.score("peer", NOW) == score
    assert court.discipline.allows("peer", NOW) is allowed
    assert court.expelled == ([] if allowed else ["peer"])


def test_a_rating_replaces_the_last_one_and_may_be_the_last_straw() -> None:
    court = Court()
    court.discipline.rate({"peer": 5.0, "other": 1.0}, NOW)
    court.fault(Severity.LOW)
    court.discipline.rate({"peer": -15.0}, NOW)
    assert [court.discipline.score(name, NOW) for name in ("peer", "other")] == [-25.0, 0.0]
    assert court.expelled == ["peer"]


def test_floods_are_told_by_peer_once() -> None:
    court = Court()
    for peer_id in ("a", "b", "a"):
        court.discipline.note_flood(peer_id, NOW)
    assert (court.discipline.take_floods(), court.discipline.take_floods()) == ({"a": 2, "b": 1}, {})
    assert court.counters.flood_pauses == 3
    assert court.discipline.score("a", NOW) == 2 * Severity.HIGH.value
