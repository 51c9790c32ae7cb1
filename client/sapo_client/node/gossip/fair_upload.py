"""An upload limit that networks share: each of n that ask gets an n-th of it. No I/O.

With one token bucket for all, whoever asks most often takes every token, and a peer that asks again after a
pause, as it was told to, finds none. Here tokens are divided among the networks that asked lately. What one
network leaves is kept for its next request up to a limit, and beyond that goes to the others. What is rented
as a whole (IPv4 /24, IPv6 /48) has the shares of four networks at most. Beyond a number of networks the site
with most of them loses the one that asked least recently.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from sapo_client.node.gossip.list_uploads import MAX_NETWORKS, NETWORKS_OF_SITE
from sapo_client.swarm.addresses import site_of
from sapo_client.swarm.limits import Rate

ASKING_SECONDS: Final = 15.0
"""Time for which a network has a share after a request: three pauses of a peer that was told `BUSY`."""

MAX_CREDIT: Final = 640 * 1024
"""Bytes kept for a network between two requests: those that one network may have in such a pause."""


@dataclass(slots=True)
class _Share:
    site: str
    asked_seconds: float
    credit: float = 0.0


class FairUpload:
    """Bytes that may be sent, divided among the networks that ask for them.

    Args:
        rate: of all networks together; the burst may be taken by whoever comes first.
    """

    def __init__(self, rate: Rate, now_seconds: float) -> None:
        self._rate = rate
        self._spare = rate.burst
        self._updated_seconds = now_seconds
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        """By network, in the order of their last requests."""
        self._of_site: Counter[str] = Counter()

    def available(self, network: str, now_seconds: float) -> float:
        """Return the bytes that a network may have now; it has a share from now on."""
        self._refill(now_seconds)
        share = self._shares.get(network)
        if share is None:
            share = self._shares[network] = _Share(site_of(network), now_seconds)
            self._of_site[share.site] += 1
        share.asked_seconds = now_seconds
        self._shares.move_to_end(network)
        if len(self._shares) > MAX_NETWORKS:
            self._drop_one()
        return share.credit + self._spare

    def take(self, network: str, size_bytes: float, now_seconds: float) -> bool:
        """Take bytes for a network and return True, or take none and return False."""
        if self.available(network, now_seconds) < size_bytes:
            return False
        share = self._shares[network]
        of_share = min(share.credit, size_bytes)
        share.credit -= of_share
        self._spare -= size_bytes - of_share
        return True

    def _refill(self, now_seconds: float) -> None:
        elapsed_seconds = now_seconds - self._updated_seconds
        if elapsed_seconds <= 0:  # a clock that steps back adds nothing
            return
        self._updated_seconds = now_seconds
        self._add_to_shares(elapsed_seconds * self._rate.per_second)
        while self._shares:
            network, share = next(iter(self._shares.items()))
            if now_seconds - share.asked_seconds <= ASKING_SECONDS:
                break
            self._drop(network)

    def _add_to_shares(self, size_bytes: float) -> None:
        """Divide bytes by weight; what does not fit into a share is divided again."""
        open_shares = [share for share in self._shares.values() if share.credit < MAX_CREDIT]
        while open_shares and size_bytes >= 1:
            weights = [min(1.0, NETWORKS_OF_SITE / self._of_site[share.site]) for share in open_shares]
            part, size_bytes = size_bytes / sum(weights), 0.0
            for share, weight in zip(open_shares, weights, strict=True):
                share.credit += part * weight
                size_bytes += max(0.0, share.credit - MAX_CREDIT)
                share.credit = min(share.credit, MAX_CREDIT)
            open_shares = [share for share in open_shares if share.credit < MAX_CREDIT]
        self._add_spare(size_bytes)

    def _drop_one(self) -> None:
        site = max(self._of_site, key=self._of_site.__getitem__)
        self._drop(next(network for network, share in self._shares.items() if share.site == site))

    def _drop(self, network: str) -> None:
        share = self._shares.pop(network)
        self._of_site[share.site] -= 1
        if not self._of_site[share.site]:
            del self._of_site[share.site]
        self._add_spare(share.credit)

    def _add_spare(self, size_bytes: float) -> None:
        self._spare = min(self._rate.burst, self._spare + size_bytes)
