"""Which of the peers that the application seeks are dialled: some of each island. Pure.

They are dialled beyond the usual number of peers, within a number of places of their own. These are split
between the islands, so that an island without members is sought while another has enough of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.vouched import VouchedPeers


@dataclass(frozen=True, slots=True)
class SoughtFor:
    """For which islands a peer is wanted, and to which networks the telling of it is ascribed."""

    islands: frozenset[int]
    source: str


def wanted_on_each(islands: int, limits: DialLimits) -> int:
    """Return how many members of each of some islands are wanted: a fair part of the places, at least one."""
    return max(1, min(limits.sought_on_island, limits.sought_peers // max(1, islands)))


class SoughtPeers:
    """The peers that the application seeks, each with the islands for which it is wanted.

    Once some peers are vouched for, half of the places of an island wait for such: whoever answers first
    could otherwise fill all with his own. Of the others those are preferred that another peer told of than
    those which are chosen already.
    """

    def __init__(self, limits: DialLimits, vouched: VouchedPeers) -> None:
        self._limits = limits
        self._vouched = vouched
        self._sought: Mapping[str, SoughtFor] = {}
        self._told: frozenset[str] = frozenset()
        self._given: set[str] = set()
        self._wanted = 1

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._sought

    def replace(self, sought: Mapping[str, SoughtFor]) -> None:
        """Seek these peers, by peer id, and no others.

        Those that were dialled stay members of their islands although their records give way to others:
        else whoever makes records come and go would have ever more peers dialled.
        """
        wanted = {each for them in sought.values() for each in them.islands}
        before = {peer_id: self._sought[peer_id] for peer_id in self._given}
        still = {peer_id: one for peer_id, one in before.items() if one.islands & wanted}
        self._sought, self._told = {**still, **sought}, frozenset(sought)
        self._given &= self._sought.keys()
        self._wanted = wanted_on_each(len(wanted), self._limits)

    def beyond(self, chosen: Collection[str]) -> int:
        """Return how many of the chosen peers have a place of their own, and so none of the usual ones.

        Those alone that `missing` named, and no more of an island than are wanted of it now.
        """
        counts: Counter[int] = Counter()
        places = 0
        for peer_id in chosen:
            if peer_id in self._given and self._fewest(peer_id, counts) < self._wanted:
                counts.update(self._sought[peer_id].islands)
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
        self._given = {each for each in self._given if each in chosen or each in self._told}
        there = [peer_id for peer_id in chosen if peer_id in self._sought]
        rest = [address for address in candidates if address.peer_id in self._sought]
        places = self._limits.sought_peers - self.beyond(chosen)
        found: list[PeerAddress] = []
        while len(found) < places and (best := self._best(rest, there)) is not None:
            rest.remove(best)
            if may_dial(best):
                found.append(best)
                there.append(best.peer_id)
        self._given.update(address.peer_id for address in found)
        return found

    def _best(self, rest: Iterable[PeerAddress], there: Iterable[str]) -> PeerAddress | None:
        """Return who is wanted most beside those who are there, or None if nobody is."""
        members: Counter[int] = Counter()
        strangers: Counter[int] = Counter()
        sources: Counter[str] = Counter()
        for peer_id in there:
            members.update(self._sought[peer_id].islands)
            if peer_id not in self._vouched:
                strangers.update(self._sought[peer_id].islands)
                sources[self._sought[peer_id].source] += 1
        for_strangers = (self._wanted + 1) // 2 if self._vouched else self._wanted
        wanted = [
            address
            for address in rest
            if self._fewest(address.peer_id, members) < self._wanted
            and (address.peer_id in self._vouched or self._fewest(address.peer_id, strangers) < for_strangers)
        ]
        return min(
            wanted,
            key=lambda address: (
                self._fewest(address.peer_id, members),
                address.peer_id not in self._vouched,
                sources[self._sought[address.peer_id].source],
            ),
            default=None,
        )

    def _fewest(self, peer_id: str, counts: Mapping[int, int]) -> int:
        """Return how many members the peer's least populated island has."""
        return min((counts.get(island, 0) for island in self._sought[peer_id].islands), default=self._wanted)
