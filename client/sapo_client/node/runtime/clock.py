"""The only place where a node reads the clocks of its machine."""

from __future__ import annotations

import math
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

QUIET_CHAIN_SECONDS: Final = 60.0
"""A chain whose newest block stays older than the clock's epoch makes none now, and says nothing of it."""

HARMLESS_SECONDS: Final = 600.0
"""Lead of a clock that costs no more than as long without signing; a chain of tests rests for longer."""

COMPARED_SECONDS: Final = 30.0
"""Time without a second block after which a start waits for none: a chain of public nodes makes one every few
seconds, and one of tests only with a transaction."""


def steady_clock() -> float:
    """Return seconds of a clock that cannot be set; on Linux it continues while the machine sleeps."""
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
    """Comparison of the wall clock with one that cannot be set.

    What follows from an epoch cannot be taken back: a signature far ahead forbids all those before, and what
    was forgotten is gone. So a clock that was set is believed only once a new block of the chain shows the
    same time, or once it stayed so for ``SETTLED_SECONDS``; and never while the chain shows that it is ahead.
    Where there is a chain, a clock is not believed at the start either, until a block shows that its epoch
    has begun or that it is ahead by ``HARMLESS_SECONDS`` at most, or until the chain was looked at for
    ``QUIET_CHAIN_SECONDS``. One block shows no more than that, for it may be old; a second one shows whether
    the clock is ahead, so that until then only the time of the first is certain.

    Args:
        steady: seconds from any moment on.
        asks_chain: whether there is a chain to compare with.
    """

    def __init__(self, clock: Clock, steady: Clock = steady_clock, *, asks_chain: bool = False) -> None:
        self._clock = clock
        self._steady = steady
        self._awaits_chain = self._awaits_block = asks_chain
        self._chain_since: float | None = None
        self._newest_block = 0.0 if asks_chain else math.inf
        self._offset = clock() - steady()
        self._jump: Jump | None = None
        self._ahead_seconds = 0.0

    def now(self) -> float:
        """Return the node's Unix seconds: a jump that is not confirmed has no effect on them."""
        steady, wall = self._steady(), self._clock()
        return wall if self._judge(wall - steady, steady) is None else steady + self._offset

    def certain(self) -> float:
        """Return Unix seconds that have passed by the chain, too, for what cannot be taken back.

        While the clock is not believed, or was compared with one block only, these are the newest block's;
        before the first block, 0.
        """
        now = self.now()
        is_certain = self.is_believed and not self._awaits_block
        return now if is_certain else min(now, self._newest_block)

    def wall(self) -> float:
        """Return Unix seconds of the wall clock, confirmed or not; to be compared with the chain's."""
        return self._clock()

    def jump(self) -> Jump | None:
        """Read both clocks; return the jump that is not confirmed yet, if there is one."""
        now = self._steady()
        return self._judge(self._clock() - now, now)

    def _judge(self, offset: float, now: float) -> Jump | None:
        if abs(offset - self._offset) <= JUMP_SECONDS:
            self._offset, self._jump = offset, None
        elif self._jump is None or abs(offset - self._jump.offset_seconds) > JUMP_SECONDS:
            self._jump = Jump(offset, now)
        elif now - self._jump.since_seconds >= SETTLED_SECONDS:
            self._offset, self._jump = offset, None
        return self._jump

    @property
    def is_believed(self) -> bool:
        """Whether the wall clock is trusted to determine the swarm's epoch."""
        is_ahead = self._ahead_seconds > CHAIN_AHEAD_SECONDS
        return not (self._awaits_chain or is_ahead) and self.jump() is None

    @property
    def awaits_chain(self) -> bool:
        """Whether the clock was not compared with the chain's since the start."""
        return self._awaits_chain

    @property
    def awaits_block(self) -> bool:
        """Whether the clock was compared with one block of the chain at most."""
        return self._awaits_block

    def facts(self) -> ClockFacts | None:
        """Return the jump as the node's health reports it; none without one."""
        if (jump := self.jump()) is None:
            return None
        settled = jump.since_seconds + SETTLED_SECONDS
        return ClockFacts(jump.offset_seconds - self._offset, settled - self._steady())

    def compared(self, jump: Jump | None, *, ahead_seconds: float | None, agrees: bool) -> None:
        """Take into account what a look at the chain showed.

        Args:
            jump: the one that was not confirmed before.
            ahead_seconds: see ``ClockCheck``.
            agrees: whether a new block has the wall clock's time.
        """
        self._ahead_seconds = ahead_seconds or 0.0
        self._awaits_chain = self._awaits_chain and not agrees
        self._awaits_block = self._awaits_block and not agrees
        if agrees and jump is not None and self.jump() is jump:
            self._offset, self._jump = jump.offset_seconds, None

    def note_block(self, timestamp_seconds: float, *, epoch_start_seconds: float) -> None:
        """Take the timestamp of the chain's newest block, with the start of the clock's epoch."""
        now = self._steady()
        is_another = self._chain_since is not None and timestamp_seconds > self._newest_block
        self._newest_block = max(self._newest_block, timestamp_seconds)
        self._chain_since = now if self._chain_since is None else self._chain_since
        looked_seconds = now - self._chain_since
        if is_another or looked_seconds >= COMPARED_SECONDS:
            self._awaits_block = False
        is_quiet = looked_seconds >= QUIET_CHAIN_SECONDS
        late = min(epoch_start_seconds, self._clock() - HARMLESS_SECONDS)
        if timestamp_seconds >= late or is_quiet:
            self._awaits_chain = False
