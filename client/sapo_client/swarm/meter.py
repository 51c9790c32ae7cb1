"""Rate limits per peer, whatever the number of its streams and connections. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class _Buckets:
    messages: TokenBucket
    bytes: TokenBucket


class Meter:
    """Token buckets by peer id, kept after a disconnection: reconnecting refills nothing."""

    def __init__(self, limits: TransportLimits) -> None:
        self._limits = limits
        self._max_peers = 4 * limits.max_connections
        self._buckets: OrderedDict[str, _Buckets] = OrderedDict()

    def take(self, peer_id: str, messages: int, size_bytes: int, now_seconds: float) -> bool:
        """Whether the peer is within both rates; if so, what it sent is counted."""
        buckets = self._of(peer_id, now_seconds)
        within_bytes = buckets.bytes.take(size_bytes, now_seconds)
        within_messages = buckets.messages.take(messages, now_seconds)
        return within_bytes and within_messages

    def _of(self, peer_id: str, now_seconds: float) -> _Buckets:
        buckets = self._buckets.get(peer_id)
        if buckets is None:
            messages = TokenBucket(self._limits.messages, now_seconds)
            buckets = _Buckets(messages, TokenBucket(self._limits.bytes, now_seconds))
            self._buckets[peer_id] = buckets
        self._buckets.move_to_end(peer_id)
        while len(self._buckets) > self._max_peers:
            self._buckets.popitem(last=False)
        return buckets
