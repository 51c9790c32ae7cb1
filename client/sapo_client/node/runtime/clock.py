"""The only place where a node reads the clocks of its machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.clock import ClockFacts

Clock = Callable[[], float]
"""Unix seconds; tests pass their own."""

wall_clock: Clock = time.time

JUMP_SECONDS: Final = 10.0
"""A change that is noticed: the correction of a running clock is slower, and peers allow this much."""

CHAIN_AHEAD_SECONDS: Final = 15.0
"""Lead over the chain with which the clock is not believed."""

SETTLED_SECONDS: Final = 300.0
"""A clock that was set and stays so is believed after this time: one that is wrong is corrected sooner."""


def steady_clock() -> float:
    """Return seconds of a clock that nobody sets; on Linux it goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """A change of the wall clock.

    Attributes:
        offset_seconds: the wall clock's lead over the steady one since then.
        since_seconds: of the steady clock, when it was noticed.
    """

    offset_seconds: float
    since_seconds: float


class ClockWatch:
    """Comparison of the wall clock with one that nobody sets.

    What follows from an epoch cannot be taken back: a signature far ahead forbids all those before, and what
    was forgotten is gone. So a clock that was set is believed only once a new block of the chain shows the
    same time, or once it stayed so for ``SETTLED_SECONDS``; and never while the chain shows that it is ahead.

    Args:
        steady: seconds from any moment on.
    """

    def __init__(self, clock: Clock, steady: Clock = steady_clock) -> None:
        self._clock = clock
        self._steady = steady
        self._offset = clock() - steady()
        self._jump: Jump | None = None
        self._ahead_seconds = 0.0

    def jump(self) -> Jump | None:
        """Look at both clocks; return the jump that is not believed yet, if there is one."""
        now = self._steady()
        offset = self._clock() - now
        if abs(offset - self._offset) <= JUMP_SECONDS:
            self._offset, self._jump = offset, None
        elif self._jump is None or abs(offset - self._jump.offset_seconds) > JUMP_SECONDS:
            self._jump = Jump(offset, now)
        elif now - self._jump.since_seconds >= SETTLED_SECONDS:
            self._offset, self._jump = offset, None
        return self._jump

    @property
    def is_believed(self) -> bool:
        """Whether the wall clock says in which epoch the swarm is."""
        return self.jump() is None and self._ahead_seconds <= CHAIN_AHEAD_SECONDS

    def facts(self) -> ClockFacts | None:
        """Return what the node's health shows of a jump; none without one."""
        if (jump := self.jump()) is None:
            return None
        settled = jump.since_seconds + SETTLED_SECONDS
        return ClockFacts(jump.offset_seconds - self._offset, settled - self._steady())

    def compared(self, jump: Jump | None, *, ahead_seconds: float | None, agrees: bool) -> None:
        """Take into account what a look at the chain showed.

        Args:
            jump: the one that was not believed before the look.
            ahead_seconds: see ``ClockCheck``.
            agrees: whether a new block has the wall clock's time.
        """
        self._ahead_seconds = ahead_seconds or 0.0
        if agrees and jump is not None and self.jump() is jump:
            self._offset, self._jump = jump.offset_seconds, None
