"""Which of the peers that the application seeks are dialled: some of each island. Pure.

They are dialled beyond the usual number of peers, within a number of places of their own. These are split
between the islands, so that an island without members is sought while another has enough of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits


def wanted_on_each(islands: int, limits: DialLimits) -> int:
    """Return how many members of each of some islands are wanted: a fair part of the places, at least one."""
    return max(1, min(limits.sought_on_island, limits.sought_peers // max(1, islands)))


class SoughtPeers:
    """The peers that the application seeks, each with the islands for which it is wanted."""

    def __init__(self, limits: DialLimits) -> None:
        self._limits = limits
        self._islands: Mapping[str, frozenset[int]] = {}
        self._given: set[str] = set()
        self._wanted = 1

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._islands

    def replace(self, islands: Mapping[str, frozenset[int]]) -> None:
        """Seek these peers and no others."""
        self._islands = dict(islands)
        self._given &= self._islands.keys()
        self._wanted = wanted_on_each(len({each for them in islands.values() for each in them}), self._limits)

    def beyond(self, chosen: Collection[str]) -> int:
        """Return how many of the chosen peers have a place of their own, and so none of the usual ones.

        Those alone that `missing` named, and no more of an island than are wanted of it now.
        """
        counts: Counter[int] = Counter()
        places = 0
        for peer_id in chosen:
            if peer_id in self._given and self._fewest(peer_id, counts) < self._wanted:
                counts.update(self._islands[peer_id])
                places += 1
        return min(places, self._limits.sought_peers)

    def missing(
        self,
        candidates: Iterable[PeerAddress],
        chosen: Collection[str],
        may_dial: Callable[[PeerAddress], bool],
    ) -> list[PeerAddress]:
        """Return addresses of sought peers to dial, of islands with fewest chosen members first.

        Members that connect by themselves count for nothing: attackers could otherwise keep a node from
        choosing any.

        Args:
            candidates: of peers that are not connected, in the order of preference.
            may_dial: is asked once for each address that would be dialled.
        """
        counts = Counter(island for peer_id in chosen for island in self._islands.get(peer_id, ()))
        rest = [address for address in candidates if address.peer_id in self._islands]
        places = self._limits.sought_peers - self.beyond(chosen)
        found: list[PeerAddress] = []
        while rest and len(found) < places:
            best = min(rest, key=lambda address: self._fewest(address.peer_id, counts))
            if self._fewest(best.peer_id, counts) >= self._wanted:
                break
            rest.remove(best)
            if may_dial(best):
                found.append(best)
                counts.update(self._islands[best.peer_id])
        self._given.update(address.peer_id for address in found)
        return found

    def _fewest(self, peer_id: str, counts: Mapping[int, int]) -> int:
        """Return how many members the peer's least populated island has."""
        return min((counts.get(island, 0) for island in self._islands[peer_id]), default=self._wanted)
