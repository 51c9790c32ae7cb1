"""Queues that several flows share: deficit round robin; the longest flow loses when room is short. No I/O.

The messages that a relay forwards to one peer are a flow per author. In a plain queue an author that sends
hundreds at once delays and displaces all others; here each author has its turn, and who sends less than its
share neither waits for more than one round nor loses anything (Shreedhar and Varghese, SIGCOMM 1995).
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sapo_client.swarm.limits import TransportLimits

T = TypeVar("T")


@dataclass(slots=True)
class _Flow(Generic[T]):
    """Waiting items with their costs, oldest first, and the cost that this turn may still send."""

    items: deque[tuple[T, float]] = field(default_factory=deque)
    cost: float = 0.0
    deficit: float = 0.0


class FairQueue(Generic[T]):
    """Items in turns of their flows, in order within each.

    Args:
        quantum: cost that a flow may send in one turn, in the unit of the costs.
    """

    def __init__(self, quantum: float) -> None:
        self._quantum = quantum
        self._flows: OrderedDict[Hashable, _Flow[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, flow: Hashable, item: T, cost: float) -> None:
        """Append an item to its flow; a new flow comes last in this round."""
        held = self._flows.setdefault(flow, _Flow(deficit=self._quantum))
        held.items.append((item, cost))
        held.cost += cost
        self._length += 1

    def pop(self) -> T | None:
        """Remove and return the next item; None if there is none."""
        while self._flows:
            name, flow = next(iter(self._flows.items()))
            item, cost = flow.items[0]
            if cost <= flow.deficit:
                flow.items.popleft()
                self._took(name, flow, cost)
                flow.deficit -= cost
                return item
            flow.deficit += self._quantum
            self._flows.move_to_end(name)
        return None

    def drop(self) -> T | None:
        """Remove and return the newest item of the flow whose items cost most; None if there is none."""
        if not self._flows:
            return None
        name, flow = max(self._flows.items(), key=lambda each: each[1].cost)
        item, cost = flow.items.pop()
        self._took(name, flow, cost)
        return item

    def _took(self, name: Hashable, flow: _Flow[T], cost: float) -> None:
        flow.cost -= cost
        self._length -= 1
        if not flow.items:  # it keeps no deficit: who sends nothing saves nothing
            del self._flows[name]


class PeerQueue(Generic[T]):
    """Items that wait for one peer, bounded by number and bytes: own ones first, then authors in turns.

    Args:
        size_of: returns an item's bytes, which do not change while it waits.
    """

    def __init__(self, limits: TransportLimits, size_of: Callable[[T], int]) -> None:
        self._limits = limits
        self._size_of = size_of
        self._max_forwarded = math.ceil(limits.forwarded_share * limits.outbound_queue)
        self._own: deque[T] = deque()
        self._forwarded: FairQueue[T] = FairQueue(limits.turn_bytes)
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._own) + len(self._forwarded)

    def take_over(self, own: Iterable[T], forwarded: Iterable[tuple[Hashable, T]]) -> None:
        """Append what waited elsewhere, whether or not it fits."""
        for item in own:
            self._append_own(item)
        for author, item in forwarded:
            self._append(author, item)

    def push_own(self, item: T) -> bool:
        """Append an item that has priority and return True, or return False where it does not fit."""
        max_bytes = self._limits.outbound_bytes + self._limits.control_bytes
        if len(self) >= self._limits.outbound_queue or self._bytes + self._size_of(item) > max_bytes:
            return False
        self._append_own(item)
        return True

    def push(self, author: Hashable, item: T) -> list[T]:
        """Append another's item; where it does not fit, remove and return newest ones of the longest flows.

        The item itself is the last one of these, if it is among them. No more is removed than was added, for
        own items may take more than the part reserved for them.
        """
        self._append(author, item)
        is_long, size = len(self) > self._max_forwarded, self._size_of(item)
        dropped: list[T] = []
        freed = 0
        while (is_long and not dropped) or (self._bytes > self._limits.outbound_bytes and freed < size):
            one = self._forwarded.drop()
            assert one is not None  # the new one at least is there
            dropped.append(one)
            freed += self._size_of(one)
            self._bytes -= self._size_of(one)
            if one is item:
                break
        return dropped

    def pop(self) -> T | None:
        """Remove and return the next item; None if there is none."""
        item = self._own.popleft() if self._own else self._forwarded.pop()
        if item is not None:
            self._bytes -= self._size_of(item)
        return item

    def _append_own(self, item: T) -> None:
        self._own.append(item)
        self._bytes += self._size_of(item)

    def _append(self, author: Hashable, item: T) -> None:
        size = self._size_of(item)
        self._forwarded.push(author, item, max(size, self._limits.turn_bytes))
        self._bytes += size


def newest_in_turns(items: Sequence[T], flow_of: Callable[[T], Hashable], limit: int) -> list[T]:
    """Return at most so many items in their order: the newest of each flow, then the second newest of each.

    Args:
        items: oldest first.
    """
    if len(items) <= limit:
        return list(items)
    newer: Counter[Hashable] = Counter()
    ranked: list[tuple[int, int]] = []
    for position in range(len(items) - 1, -1, -1):
        flow = flow_of(items[position])
        ranked.append((newer[flow], position))
        newer[flow] += 1
    ranked.sort(key=lambda each: (each[0], -each[1]))
    return [items[position] for position in sorted(position for _, position in ranked[:limit])]
