"""A clock of the time in which this process ran, for durations that a halt must not prolong.

While a process is halted (SIGSTOP, a frozen container, some virtual machines) the monotonic clock goes on and
nothing of the process does. Afterwards, every duration measured by that clock includes the halt: a call that
was answered at once looks like one that hangs.
"""

from __future__ import annotations

from typing import Final

import trio

_TICK_SECONDS: Final = 1.0

HALT_SECONDS: Final = 20.0
"""A tick that is later than this was delayed by a halt. On a busy machine ticks are seconds late."""


class RunningTime:
    """Seconds in which this process ran. While ``run`` does not run, halts are not noticed."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._halted = 0.0

    async def run(self) -> None:
        """Notice halts until cancelled; may be run again after that."""
        try:
            while True:
                self._due = trio.current_time() + _TICK_SECONDS
                await trio.sleep_until(self._due)
                self._halted += self._late()
        finally:
            self._halted += self._late()
            self._due = None

    def seconds(self) -> float:
        """Return the time of a clock that stands still while the process is halted; its zero is arbitrary."""
        return trio.current_time() - self._halted - self._late()

    def _late(self) -> float:
        """Return by how many seconds the next tick is late if a halt delays it, else 0."""
        late = 0.0 if self._due is None else trio.current_time() - self._due
        return late if late > HALT_SECONDS else 0.0
