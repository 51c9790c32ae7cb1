"""Comparison of this machine's clock with the timestamps of the chain's blocks."""

from typing import Final

_DELAY_SECONDS: Final = 15.0
"""Time from a block's timestamp to the moment at which an endpoint shows it, at most."""

_AGREES_SECONDS: Final = 30.0
"""Age of a new block that shows that the clock is right: chains make one every few seconds."""


class ClockCheck:
    """Lower bound of the lead of this machine's clock over the chain's.

    A block from the future proves that the clock is behind. A block that appeared between two queries was
    made after the first one: if its timestamp is older than the time of the first query, the clock is ahead.
    Without new blocks nothing can be concluded.

    Attributes:
        ahead_seconds: smallest possible lead, negative if the clock is behind, 0 if the two may agree;
            none before the first block.
        agrees: whether the last query found a new block whose timestamp matches the clock.
    """

    def __init__(self) -> None:
        self.ahead_seconds: float | None = None
        self.agrees = False
        self._last: tuple[int, float] | None = None

    def note(self, *, block: int, timestamp: int, now: float) -> None:
        """Record the newest block and this machine's time at which it was seen."""
        last, self._last = self._last, (block, now)
        if last is not None and now < last[1]:  # the clock was set back: earlier conclusions no longer hold
            last, self.ahead_seconds = None, None
        is_new = last is not None and block > last[0]
        self.agrees = is_new and 0 <= now - timestamp <= _AGREES_SECONDS
        if timestamp > now:
            self.ahead_seconds = now - timestamp
        elif last is not None and block > last[0]:
            self.ahead_seconds = max(0.0, last[1] - timestamp - _DELAY_SECONDS)
        elif self.ahead_seconds is None or self.ahead_seconds < 0:
            self.ahead_seconds = 0.0
