"""Events in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class EventQueue:
    """Events in virtual time; those of one moment run in the order in which they were added."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, due_seconds: float, event: Callable[[], None]) -> None:
        """Run an event at a time."""
        self._number += 1
        heapq.heappush(self._events, (due_seconds, self._number, event))

    def run_until(self, end_seconds: float) -> None:
        """Run all events up to a time, and what they add."""
        while self._events and self._events[0][0] <= end_seconds:
            self.now_seconds, _, event = heapq.heappop(self._events)
            event()
        self.now_seconds = end_seconds
