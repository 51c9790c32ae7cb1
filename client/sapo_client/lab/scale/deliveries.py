"""How far and how fast groups of honest accounts reach the honest nodes of their island."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

WAIT_SECONDS: Final = 20.0
"""A group that has not come by then is counted as lost."""

REACHED: Final = 0.99
"""Share of an island that a group must reach to count as delivered."""


@dataclass(slots=True)
class _Sent:
    island: int
    at_seconds: float
    expected: set[str]
    delays: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Nodes that did not get a group, and those that got it, with the seconds that it took."""

    missed: frozenset[str]
    delays: dict[str, float]


class Deliveries:
    """Counts of deliveries; a group's are dropped from memory when its time is over.

    Attributes:
        delays: of all deliveries, in seconds.
        groups, delivered: that were sent, and that reached ``REACHED`` of their island.
        places, reached: pairs of a group and a node that was to get it, and that got it.
        by_island: the last two, by island.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, _Sent] = {}
        self.delays = array("f")
        self.groups = 0
        self.delivered = 0
        self.places = 0
        self.reached = 0
        self.by_island: dict[int, tuple[int, int]] = {}

    def sent(self, identity: bytes, island: int, expected: set[str], now_seconds: float) -> None:
        """Expect a group at some nodes of an island, given by their peer ids."""
        self._open[identity] = _Sent(island, now_seconds, expected)

    def admitted(self, identity: bytes, node: str, now_seconds: float) -> None:
        """Count a group that a node admitted."""
        sent = self._open.get(identity)
        if sent is not None and node in sent.expected:
            sent.delays.setdefault(node, now_seconds - sent.at_seconds)

    def close(self, identity: bytes, still_there: set[str]) -> Judgement:
        """Judge a group by the expected nodes that did not leave meanwhile."""
        sent = self._open.pop(identity)
        expected = sent.expected & still_there
        got = {node: delay for node, delay in sent.delays.items() if node in expected}
        if expected:
            self.delays.extend(got.values())
            self.groups += 1
            self.delivered += len(got) >= REACHED * len(expected)
            self.places += len(expected)
            self.reached += len(got)
            places, reached = self.by_island.get(sent.island, (0, 0))
            self.by_island[sent.island] = places + len(expected), reached + len(got)
        return Judgement(frozenset(expected - got.keys()), got)

    def delay(self, share: float) -> float:
        """Return the delay in seconds that a share of all deliveries does not exceed."""
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
