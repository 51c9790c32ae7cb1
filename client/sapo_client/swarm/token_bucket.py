"""Token bucket: a sustained rate with a burst. Pure; the clock is passed in."""

from __future__ import annotations

from sapo_client.swarm.limits import Rate


class TokenBucket:
    """Bucket that starts full, refills steadily and never holds more than its burst."""

    __slots__ = ("_rate", "_tokens", "_updated_seconds")

    def __init__(self, rate: Rate, now_seconds: float) -> None:
        self._rate = rate
        self._tokens = rate.burst
        self._updated_seconds = now_seconds

    def take(self, amount: float, now_seconds: float) -> bool:
        """Take `amount` tokens and return True, or take none and return False."""
        self._refill(now_seconds)
        if amount > self._tokens:
            return False
        self._tokens -= amount
        return True

    def available(self, now_seconds: float) -> float:
        """Return the number of tokens at this moment."""
        self._refill(now_seconds)
        return self._tokens

    def _refill(self, now_seconds: float) -> None:
        elapsed_seconds = now_seconds - self._updated_seconds
        if elapsed_seconds <= 0:  # a clock that steps back adds no tokens
            return
        self._tokens = min(self._rate.burst, self._tokens + elapsed_seconds * self._rate.per_second)
        self._updated_seconds = now_seconds
