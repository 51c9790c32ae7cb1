"""Peers that this node chose, was connected with for some time and lost. Pure; the clock is passed in.

They are dialled for days, whatever the number of other peers: if a partition has split a swarm and its
bootstrap node is gone, only they connect the halves again. Peers that connected themselves are not
remembered, since an attacker can stay connected for long.

One peer of each network is kept before any network has a second, those that were connected longest first.
Connected peers take no place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sapo_client.swarm.limits import DialLimits


@dataclass(frozen=True, slots=True)
class _Lost:
    network: str
    connected_seconds: float
    lost_seconds: float


class LostPeers:
    """A few lost peers, by peer id, and those of them that were found again."""

    def __init__(self, limits: DialLimits) -> None:
        self._limits = limits
        self._chosen: dict[str, tuple[str, float]] = {}
        self._lost: dict[str, _Lost] = {}
        self._regained: set[str] = set()

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._lost

    def chose(self, peer_id: str, network: str, now_seconds: float) -> None:
        """Record that this node opened a connection to a peer in a network."""
        earlier = self._lost.pop(peer_id, None)
        if earlier is not None:
            self._regained.add(peer_id)
        before_seconds = 0.0 if earlier is None else earlier.connected_seconds
        self._chosen.setdefault(peer_id, (network, now_seconds - before_seconds))

    def left(self, peer_id: str, now_seconds: float) -> None:
        """Record that a peer's last connection ended."""
        self._regained.discard(peer_id)
        network, since_seconds = self._chosen.pop(peer_id, ("", now_seconds))
        connected_seconds = now_seconds - since_seconds
        if connected_seconds < self._limits.lost_after_seconds:
            return
        self._lost[peer_id] = _Lost(network, connected_seconds, now_seconds)
        if len(self._lost) > self._limits.max_lost:
            del self._lost[self._last()]

    def give_up(self, peer_id: str) -> None:
        """Record that this node itself ends the connection to a peer, so that it does not count as lost."""
        self._chosen.pop(peer_id, None)
        self._regained.discard(peer_id)

    def forget_old(self, now_seconds: float) -> None:
        """Forget those that have been lost for too long."""
        since_seconds = now_seconds - self._limits.lost_for_seconds
        self._lost = {each: lost for each, lost in self._lost.items() if lost.lost_seconds > since_seconds}

    def beyond(self, chosen: Collection[str]) -> int:
        """Return how many of the chosen peers are lost ones that were found again or are being dialled, which
        have separate places."""
        found = (peer_id in self._regained or peer_id in self._lost for peer_id in chosen)
        return min(self._limits.lost_peers, sum(found))

    def places(self, chosen: Collection[str]) -> int:
        """Return how many lost peers are wanted now, beside those that were found again."""
        room = self._limits.usual_beside_sought + self._limits.sought_peers - len(chosen)
        return max(0, min(self._limits.lost_peers - self.beyond(chosen), room))

    def _last(self) -> str:
        """Return the one to forget first."""
        members: Counter[str] = Counter()
        order: dict[str, tuple[int, float]] = {}
        for peer_id, lost in sorted(self._lost.items(), key=lambda each: -each[1].connected_seconds):
            order[peer_id] = (members[lost.network], -lost.connected_seconds)
            members[lost.network] += 1
        return max(order, key=lambda peer_id: order[peer_id])
