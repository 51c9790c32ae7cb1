"""The peers whose accounts this node trusts, for which connection places are kept. Pure.

Peer ids are free, so an attacker can connect any number of peers and fill every place that is open to all.
Earning trust takes epochs of answers, and a bond costs tokens, so places reserved for such accounts cannot be
filled with new keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class VouchedPeers:
    """Peers that the application vouches for: those that earned it here, and those of bonded accounts.

    A bond can be bought, so bonded peers come after those that earned trust, and cannot take all places.
    """

    def __init__(self) -> None:
        self._earned: frozenset[str] = frozenset()
        self._bonded: frozenset[str] = frozenset()

    def replace(self, earned: Iterable[str], bonded: Iterable[str] = ()) -> None:
        """Vouch for these peers and no others; one that is among both has earned it."""
        self._earned = frozenset(earned)
        self._bonded = frozenset(bonded) - self._earned

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._earned or peer_id in self._bonded

    def __len__(self) -> int:
        return len(self._earned) + len(self._bonded)

    def has_earned(self, peer_id: str) -> bool:
        """Whether a peer earned trust here."""
        return peer_id in self._earned

    def earned_among(self, peer_ids: Collection[str]) -> int:
        """Return how many of the given peers earned trust here."""
        return sum(peer_id in self._earned for peer_id in peer_ids)

    def bonded_among(self, peer_ids: Collection[str]) -> int:
        """Return how many of the given peers are vouched for only by a bond."""
        return sum(peer_id in self._bonded for peer_id in peer_ids)
