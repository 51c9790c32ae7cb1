"""Token buckets, alone and per peer. Pure; the clock is passed in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sapo_client.swarm.limits import ConnectionRates, Rate, TransportLimits

MIN_SLEEP_SECONDS: Final = 0.001
"""Shortest time to wait for tokens; a shorter one may be lost in the rounding of the clock."""


class TokenBucket:
    """Sustained rate with a burst: the bucket starts full, refills steadily and never holds more."""

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

    def change(self, rate: Rate, now_seconds: float) -> None:
        """Refill at another rate from now on; a greater burst is filled by time alone."""
        self._refill(now_seconds)
        self._rate = rate
        self._tokens = min(self._tokens, rate.burst)

    def spend(self, amount: float, now_seconds: float) -> None:
        """Take tokens even if there are too few, for data that has already been received."""
        self._refill(now_seconds)
        self._tokens -= amount

    def seconds_until(self, amount: float, now_seconds: float) -> float:
        """Return how long it takes until there are that many tokens, or the whole burst; 0 if there are."""
        self._refill(now_seconds)
        return max(0.0, min(amount, self._rate.burst) - self._tokens) / self._rate.per_second

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


class KeyedBuckets:
    """A token bucket of one rate for each key; beyond a number of keys the oldest bucket is forgotten."""

    def __init__(self, rate: Rate, max_keys: int) -> None:
        self._rate = rate
        self._max_keys = max_keys
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, key: str, now_seconds: float, amount: float = 1) -> bool:
        """Take tokens of a key and return True, or take none and return False."""
        bucket = self._buckets.setdefault(key, TokenBucket(self._rate, now_seconds))
        if len(self._buckets) > self._max_keys:
            del self._buckets[next(iter(self._buckets))]
        return bucket.take(amount, now_seconds)

    def available(self, key: str, now_seconds: float) -> float:
        """Return the number of tokens of a key."""
        bucket = self._buckets.get(key)
        return self._rate.burst if bucket is None else bucket.available(now_seconds)


@dataclass(frozen=True, slots=True)
class _Buckets:
    messages: TokenBucket
    bytes: TokenBucket


class Meter:
    """Token buckets by peer id, whatever the number of its streams and connections.

    They are kept after a disconnection: reconnecting refills nothing.
    """

    def __init__(self, limits: TransportLimits) -> None:
        self._max_peers = 4 * limits.max_connections
        self._buckets: OrderedDict[str, _Buckets] = OrderedDict()
        self._rates_for: Callable[[float], ConnectionRates] = limits.rates_for
        self._rates = self._rates_for(0.0)
        self._knows_all = True

    @property
    def proves_flood(self) -> bool:
        """Whether a peer that exceeds its rates is certainly no honest relay."""
        return self._rates.proves_flood and self._knows_all

    def expect(self, quota_per_second: float, now_seconds: float, *, knows_all: bool = True) -> None:
        """Set every peer's rates from the messages per second that all accounts together may send.

        Args:
            knows_all: false while some of these accounts may be unknown; then nothing proves a flood.
        """
        self._knows_all = knows_all
        rates = self._rates_for(quota_per_second)
        if rates == self._rates:
            return
        self._rates = rates
        for buckets in self._buckets.values():
            buckets.messages.change(rates.messages, now_seconds)
            buckets.bytes.change(rates.bytes, now_seconds)

    def take(self, peer_id: str, messages: int, size_bytes: int, now_seconds: float) -> bool:
        """Whether the peer is within both rates; if so, what it sent is counted."""
        buckets = self._of(peer_id, now_seconds)
        within_bytes = buckets.bytes.take(size_bytes, now_seconds)
        within_messages = buckets.messages.take(messages, now_seconds)
        return within_bytes and within_messages

    def seconds_until(self, peer_id: str, messages: int, size_bytes: int, now_seconds: float) -> float:
        """Return in how many seconds so much is within both rates of a peer."""
        buckets = self._of(peer_id, now_seconds)
        return max(
            buckets.bytes.seconds_until(size_bytes, now_seconds),
            buckets.messages.seconds_until(messages, now_seconds),
        )

    def spend(self, peer_id: str, messages: int, size_bytes: int, now_seconds: float) -> None:
        """Count what is sent or received in any case."""
        buckets = self._of(peer_id, now_seconds)
        buckets.bytes.spend(size_bytes, now_seconds)
        buckets.messages.spend(messages, now_seconds)

    def _of(self, peer_id: str, now_seconds: float) -> _Buckets:
        buckets = self._buckets.get(peer_id)
        if buckets is None:
            messages = TokenBucket(self._rates.messages, now_seconds)
            buckets = _Buckets(messages, TokenBucket(self._rates.bytes, now_seconds))
            self._buckets[peer_id] = buckets
        self._buckets.move_to_end(peer_id)
        while len(self._buckets) > self._max_peers:
            self._buckets.popitem(last=False)
        return buckets


class SendingPace(Meter):
    """The pace at which a node sends to each peer: below what a peer lets one connection bring.

    A node may receive more than that: each of its peers may send as much, and what is valid is forwarded. If
    it forwarded all of it, an attacker with several connections would make it look like a flooder.
    """

    def __init__(self, limits: TransportLimits) -> None:
        super().__init__(limits)
        self._rates_for = lambda quota_per_second: limits.rates_for(quota_per_second).of_sender
        self._rates = self._rates_for(0.0)

    def seconds_for(self, messages: int) -> float:
        """Return how long it takes to send so many messages to a peer."""
        return messages / self._rates.messages.per_second
