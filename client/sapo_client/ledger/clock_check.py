"""Comparison of this machine's clock with the timestamps of the chain's blocks."""

from typing import Final

_DELAY_SECONDS: Final = 15.0
"""Time from a block's timestamp to the moment at which an endpoint shows it, at most."""

_AGREES_SECONDS: Final = 30.0
"""Age of a new block that shows that the clock is right: chains make one every few seconds."""


class ClockCheck:
    """Bound on the lead of this machine's clock over the chain's.

    A block from the future proves that the clock is behind. A block that appeared between two looks was made
    after the first of them: if its timestamp is older than that look's time, the clock is ahead. Where no
    block is made, nothing is learned.

    Attributes:
        ahead_seconds: least lead, negative if the clock is behind, 0 where the two agree as far as known;
            none before the first block.
        agrees: whether the last block is newer than the one before the look, and has the clock's time.
    """

    def __init__(self) -> None:
        self.ahead_seconds: float | None = None
        self.agrees = False
        self._last: tuple[int, float] | None = None

    def note(self, *, block: int, timestamp: int, now: float) -> None:
        """Take into account that a block is the newest one at a time of this machine's clock."""
        last, self._last = self._last, (block, now)
        if last is not None and now < last[1]:  # it was set back: what was learned is of another clock
            last, self.ahead_seconds = None, None
        is_new = last is not None and block > last[0]
        self.agrees = is_new and 0 <= now - timestamp <= _AGREES_SECONDS
        if timestamp > now:
            self.ahead_seconds = now - timestamp
        elif last is not None and block > last[0]:
            self.ahead_seconds = max(0.0, last[1] - timestamp - _DELAY_SECONDS)
        elif self.ahead_seconds is None or self.ahead_seconds < 0:
            self.ahead_seconds = 0.0
