"""The peers whose accounts this node trusts, for which connection places are kept. Pure.

Peer ids are free, so an attacker can offer any number of peers and fill every place that is open to all. An
account that this node trusts has answered for epochs, so places kept for such accounts cannot be filled with
new keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class VouchedPeers:
    """Set of peer ids that the application vouches for; replaced as a whole."""

    def __init__(self) -> None:
        self._peer_ids: frozenset[str] = frozenset()

    def replace(self, peer_ids: Iterable[str]) -> None:
        """Vouch for these peers and no others."""
        self._peer_ids = frozenset(peer_ids)

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._peer_ids

    def __len__(self) -> int:
        return len(self._peer_ids)

    def among(self, peer_ids: Collection[str]) -> int:
        """Return how many of the given peers are vouched for."""
        return sum(peer_id in self._peer_ids for peer_id in peer_ids)
