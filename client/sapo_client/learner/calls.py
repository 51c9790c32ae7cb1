"""Deadlines of calls to the learner, derived from the durations of earlier calls of the same name."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from statistics import median
from typing import Final

REMEMBERED: Final = 20
"""Calls of a name whose durations are remembered."""

ENOUGH: Final = 5
"""Calls after which a median is trusted for a deadline."""

FIRST_SECONDS: Final = 3600.0
"""Deadline of the first calls: that of a large model may compile and allocate for many minutes."""

MIN_SECONDS: Final = 300.0
"""Shortest deadline, since a busy machine may delay a fast call."""

FACTOR: Final = 20.0
"""A call that takes this many times the median duration counts as hanging."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call that has not returned.

    Attributes:
        usual_seconds: median of earlier calls of this name; None for the first ones.
        deadline_seconds: duration after which the learner is killed.
    """

    name: str
    seconds: float
    usual_seconds: float | None
    deadline_seconds: float

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed."""
        return self.seconds >= self.deadline_seconds


class CallTimes:
    """Durations of finished calls, by name."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=REMEMBERED))

    def add(self, name: str, seconds: float) -> None:
        """Remember the duration of a finished call."""
        self._seconds[name].append(seconds)

    def running(self, name: str, seconds: float) -> RunningCall:
        """Return a running call of a given age with its deadline."""
        before = self._seconds[name]
        usual = median(before) if before else None
        enough = usual is not None and len(before) >= ENOUGH
        deadline = max(MIN_SECONDS, FACTOR * usual) if enough and usual is not None else FIRST_SECONDS
        return RunningCall(name, seconds, usual, deadline)
