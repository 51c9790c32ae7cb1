"""Selection of the peers to dial among those that the application seeks: some of each island. No I/O.

They are dialled in addition to the usual number of peers, within separate places. These are divided between
the islands, so that members of one island are sought while another has enough of them. Of an island that is
short (`swarm/relays.py`) further members are sought, one at a time; members that relay nothing are not
counted there. If all places are taken and there is no relay, a random member is replaced by a random one that
is not connected; it is not dialled again for some minutes, and has no penalty.

On an island that this node publishes on one member more is wanted, and one less on the others. That place is
taken in turns: attackers that forward everything but this node's messages look like relays. Always the member
that was chosen last is replaced, so an attacker that has all records takes that place alone.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.relays import Shortage
from sapo_client.swarm.vouched import VouchedPeers


@dataclass(frozen=True, slots=True)
class SoughtFor:
    """The islands for which a peer is wanted, and the source network of its address record."""

    islands: frozenset[int]
    source: str


def wanted_on_each(islands: int, limits: DialLimits) -> int:
    """Return how many members of each of some islands are wanted: a fair part of the places, at least one."""
    return max(1, min(limits.sought_on_island, limits.sought_peers // max(1, islands)))


class SoughtPeers:
    """The peers that the application seeks, each with the islands for which it is wanted.

    Once some peers are vouched for, half of the places of an island are reserved for vouched ones, since
    otherwise the first source to answer could fill all places. Among the others, those from sources without a
    chosen peer are preferred.
    """

    def __init__(self, limits: DialLimits, vouched: VouchedPeers, rng: random.Random) -> None:
        self._limits = limits
        self._vouched = vouched
        self._rng = rng
        self._sought: Mapping[str, SoughtFor] = {}
        self._told: frozenset[str] = frozenset()
        self._given: set[str] = set()
        self._wanted: dict[int, int] = {}
        self._fewer = 0
        self._short: Mapping[int, Shortage] = {}
        self._further_seconds = 0.0
        self._pause_seconds = limits.further_seconds
        self._giving_way = 0
        self._gave_way: dict[str, float] = {}
        self._turn_seconds: dict[int, float] = {}
        self._order: list[str] = []
        self._had_turn: set[str] = set()

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._sought

    def replace(
        self,
        sought: Mapping[str, SoughtFor],
        short: Mapping[int, Shortage],
        own: Collection[int] = (),
    ) -> None:
        """Seek these peers, by peer id, and no others.

        Dialled peers stay members of their islands although their records are dropped; otherwise an attacker
        could have ever more peers dialled by replacing records.

        Args:
            short: the islands that are short of relays.
            own: the islands that this node publishes on.
        """
        wanted = {each for them in sought.values() for each in them.islands}
        before = {peer_id: self._sought[peer_id] for peer_id in self._given}
        still = {peer_id: one for peer_id, one in before.items() if one.islands & wanted}
        self._sought, self._told = {**still, **sought}, frozenset(sought)
        self._given &= self._sought.keys()
        self._had_turn &= self._told
        self._turn_seconds = {each: self._turn_seconds.get(each, math.inf) for each in own}
        each_wants = wanted_on_each(len(wanted), self._limits)
        self._fewer = int(each_wants > 1 and not wanted.isdisjoint(own))
        one_more = min(each_wants + 1, self._limits.sought_peers)  # never more than there are places
        self._wanted = {each: one_more if each in own else each_wants - self._fewer for each in wanted}
        self._short = short
        if not any(shortage.may_replace for shortage in short.values()):
            self._pause_seconds = self._limits.further_seconds
            self._giving_way = 0

    @property
    def usual(self) -> int:
        """Number of wanted peers of any island in addition to these: fewer if there are any."""
        if not self._sought:
            return self._limits.target_peers
        return min(self._limits.target_peers, self._limits.usual_beside_sought)

    def gave_way(self, peer_id: str, now_seconds: float) -> bool:
        """Whether a peer was replaced lately, so that it is not dialled."""
        return now_seconds < self._gave_way.get(peer_id, now_seconds)

    def beyond(self, chosen: Collection[str]) -> int:
        """Return how many of the chosen peers have a place of their own, and so none of the usual ones.

        Those alone that `missing` named, and no more of an island than are wanted of it now. On an island of
        which too little is heard all of them have one.
        """
        return min(self._members(chosen), self._places(chosen))

    def _members(self, chosen: Collection[str]) -> int:
        counts: Counter[int] = Counter()
        found = 0
        for peer_id in chosen:
            if peer_id not in self._given:
                continue
            islands = self._sought[peer_id].islands
            if self._lack(peer_id, counts) > -self._fewer or not islands.isdisjoint(self._short):
                counts.update(islands)
                found += 1
        return found

    def _places(self, chosen: Collection[str]) -> int:
        """Return how many chosen peers may have a place of their own.

        While an island is short some more than usual, as far as usual peers are missing: never more in all
        than leave the places alone that inbound peers take.
        """
        if not self._short:
            return self._limits.sought_peers
        room = self.usual - (len(chosen) - self._members(chosen))
        return self._limits.sought_peers + max(0, min(self._limits.further_peers, room))

    def missing(
        self,
        candidates: Iterable[PeerAddress],
        chosen: Collection[str],
        may_dial: Callable[[PeerAddress], bool],
        now_seconds: float,
    ) -> list[PeerAddress]:
        """Return addresses of sought peers to dial, of islands with fewest chosen members first.

        Members that connected themselves are not counted: attackers could otherwise keep a node from choosing
        any.

        Args:
            candidates: of peers that are not connected, in the order of preference.
            may_dial: called once for each address that would be dialled.
        """
        self._given = {each for each in self._given if each in chosen or each in self._told}
        there = [peer_id for peer_id in chosen if peer_id in self._sought]
        rest = [address for address in candidates if address.peer_id in self._sought]
        beyond = self.beyond(chosen)
        places = self._limits.sought_peers - beyond
        found: list[PeerAddress] = []
        while len(found) < places and (best := self._best(rest, there, idle_count=True)) is not None:
            rest.remove(best)
            if may_dial(best):
                found.append(best)
                there.append(best.peer_id)
        if not found and self._places(chosen) > beyond and now_seconds >= self._further_seconds:
            further = self._best(rest, there, idle_count=False)
            if further is not None and may_dial(further):
                found.append(further)
                self._further_seconds = now_seconds + self._limits.further_seconds
        self._given.update(address.peer_id for address in found)
        return found

    def giving_way(
        self, candidates: Iterable[PeerAddress], chosen: Collection[str], now_seconds: float
    ) -> str | None:
        """Return a chosen member to be replaced by a candidate, or None.

        Only if all places are taken.
        """
        offered = {each for address in candidates for each in self._islands_of(address.peer_id)}
        found = self._idle(offered, chosen, now_seconds) or self._last_in_turn(offered, chosen, now_seconds)
        if found is not None:
            kept = {each: until for each, until in self._gave_way.items() if until > now_seconds}
            self._gave_way = {**kept, found: now_seconds + self._limits.gave_way_seconds}
        return found

    def _last_in_turn(
        self, offered: Collection[int], chosen: Collection[str], now_seconds: float
    ) -> str | None:
        """Return the member that was chosen last on an island that this node publishes on, once a turn.

        While all places are taken and it has no member more than others, one of another island.

        Earned trust keeps no place here: who forwards everything but one author's messages earns it, too.
        """
        stayed = [each for each in self._order if each in chosen]
        self._order = [*stayed, *sorted(frozenset(chosen).difference(stayed))]
        for island, due_seconds in self._turn_seconds.items():
            if due_seconds == math.inf:
                self._turn_seconds[island] = now_seconds + self._limits.turn_seconds
            members = [each for each in self._order if island in self._islands_of(each)]
            if now_seconds < due_seconds or island not in offered:
                continue
            if len(members) < self._wanted.get(island, 0):
                if self.beyond(chosen) < self._places(chosen):
                    continue
                members = [each for each in self._order if each in self._given and each not in members]
            if members:
                self._turn_seconds[island] = now_seconds + self._limits.turn_seconds
                self._had_turn.add(members[-1])
                return members[-1]
        return None

    def _idle(self, offered: Collection[int], chosen: Collection[str], now_seconds: float) -> str | None:
        """Return a random member that relays nothing on an island without any relay, or None.

        Members with earned trust stay. Some are replaced one after another, followed by a pause, which
        doubles while that brings no relay: an island on which only this node publishes has no relays either.
        """
        if now_seconds < self._further_seconds or self.beyond(chosen) < self._places(chosen):
            return None
        leaving = sorted(
            peer_id
            for peer_id in chosen
            if peer_id in self._given
            and not self._vouched.has_earned(peer_id)
            and any(
                island in offered and shortage.may_replace and peer_id in shortage.idle
                for island, shortage in self._short.items()
                if island in self._sought[peer_id].islands
            )
        )
        if not leaving:
            return None
        found = self._rng.choice(leaving)
        self._giving_way += 1
        if self._giving_way % self._limits.giving_way == 0:
            self._further_seconds = now_seconds + self._pause_seconds
            self._pause_seconds = min(2 * self._pause_seconds, self._limits.max_further_seconds)
        return found

    def _islands_of(self, peer_id: str) -> frozenset[int]:
        return self._sought[peer_id].islands if peer_id in self._sought else frozenset()

    def _best(
        self, rest: Iterable[PeerAddress], there: Iterable[str], *, idle_count: bool
    ) -> PeerAddress | None:
        """Return the most wanted candidate in addition to the present members, or None.

        Args:
            idle_count: whether members that relay nothing on a short island are counted there.
        """
        members: Counter[int] = Counter()
        strangers: Counter[int] = Counter()
        sources: Counter[str] = Counter()
        for peer_id in there:
            islands = self._sought[peer_id].islands if idle_count else self._useful_on(peer_id)
            members.update(islands)
            if peer_id not in self._vouched:
                strangers.update(islands)
                sources[self._sought[peer_id].source] += 1
        wanted = [
            address
            for address in rest
            if self._lack(address.peer_id, members) > 0
            and (
                address.peer_id in self._vouched or self._lack(address.peer_id, strangers, strangers=True) > 0
            )
        ]
        return min(
            wanted,
            key=lambda address: (
                -self._lack(address.peer_id, members),
                address.peer_id not in self._vouched,
                sources[self._sought[address.peer_id].source],
                address.peer_id in self._had_turn,
            ),
            default=None,
        )

    def _useful_on(self, peer_id: str) -> frozenset[int]:
        """Return the islands of a member without those that are short and to which it brings nothing."""
        idle = {island for island, shortage in self._short.items() if peer_id in shortage.idle}
        return self._sought[peer_id].islands - idle

    def _lack(self, peer_id: str, counts: Mapping[int, int], *, strangers: bool = False) -> int:
        """Return how many members are missing on that of the peer's islands which lacks most.

        Args:
            strangers: whether only the places for peers that are not vouched for are counted.
        """
        halved = strangers and bool(self._vouched)
        lacks = []
        for island in self._sought[peer_id].islands:
            wanted = self._wanted.get(island, 0)
            lacks.append(((wanted + 1) // 2 if halved else wanted) - counts.get(island, 0))
        return max(lacks, default=0)
