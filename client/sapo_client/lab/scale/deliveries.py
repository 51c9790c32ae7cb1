"""Reach and delay of honest accounts' groups at the honest nodes of their island."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

WAIT_SECONDS: Final = 20.0
"""Time after which a group that has not arrived counts as lost."""

REACHED: Final = 0.99
"""Share of an island's nodes that a group must reach to count as delivered."""


@dataclass(slots=True)
class _Sent:
    island: int
    at_seconds: float
    expected: set[str]
    delays: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Nodes that did not receive a group, and the delays in seconds of those that did."""

    missed: frozenset[str]
    delays: dict[str, float]


class Deliveries:
    """Counts of deliveries; those of a group are removed from memory after ``WAIT_SECONDS``.

    Attributes:
        delays: of all deliveries, in seconds.
        groups, delivered: number of groups that were sent, and that reached ``REACHED`` of their island.
        places, reached: number of (group, node) pairs in which the node should receive the group, and in
            which it received it.
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
        """Record a group that some nodes of an island, given by their peer ids, should receive."""
        self._open[identity] = _Sent(island, now_seconds, expected)

    def admitted(self, identity: bytes, node: str, now_seconds: float) -> None:
        """Count a group that a node admitted."""
        sent = self._open.get(identity)
        if sent is not None and node in sent.expected:
            sent.delays.setdefault(node, now_seconds - sent.at_seconds)

    def close(self, identity: bytes, still_there: set[str]) -> DeliveryResult:
        """Return a group's result at the expected nodes that did not leave meanwhile."""
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
        return DeliveryResult(frozenset(expected - got.keys()), got)

    def delay(self, share: float) -> float:
        """Return a quantile of the delays of all deliveries, in seconds."""
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
