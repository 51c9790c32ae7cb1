"""Queue that several flows share: deficit round robin, and the longest flow loses when room is short. No I/O.

The messages that a relay forwards to one peer are a flow per author. In a plain queue an author that sends
hundreds at once delays and displaces all others; here each author has its turn, and who sends less than its
share neither waits for more than one round nor loses anything (Shreedhar and Varghese, SIGCOMM 1995).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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


def newest_in_turns(items: Sequence[T], flow_of: Callable[[T], Hashable], most: int) -> list[T]:
    """Return at most so many items in their order: the newest of each flow, then the second newest of each.

    Args:
        items: oldest first.
    """
    if len(items) <= most:
        return list(items)
    newer: Counter[Hashable] = Counter()
    ranked: list[tuple[int, int]] = []
    for position in range(len(items) - 1, -1, -1):
        flow = flow_of(items[position])
        ranked.append((newer[flow], position))
        newer[flow] += 1
    ranked.sort(key=lambda each: (each[0], -each[1]))
    return [items[position] for position in sorted(position for _, position in ranked[:most])]
