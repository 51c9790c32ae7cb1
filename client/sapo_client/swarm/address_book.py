"""Decides which peers to dial, at which address and when. Pure; clock and random generator are passed in.

Bootstrap peers are dialled for ever, with a back-off that doubles up to a ceiling. Peers learned from others
are dialled only while more peers are wanted, and dropped after some failures, unless they are vouched for, so
that a partition of some minutes does not lose trusted peers. A few peers that were connected for some time
and lost are dialled for a week, whatever the number of other peers, since the two halves of a partitioned
swarm each have enough peers of their own.

An address that a peer sent over its own connection, or at which it was reached, is *first-hand*. One in a
signed address record is *signed*: it is authentic, but may be unreachable. One that other peers sent is
*hearsay*. Addresses of a weaker kind never replace those of a stronger one, and are tried after them. A peer
belongs to the strongest kind of its addresses. Of the book's places for strangers (peers without earned
trust), half are for first-hand ones; of the other half, signed ones have up to half, and hearsay the rest. If
a part is full, the source network with most entries loses its oldest one, so that a source with many
addresses displaces only its own. Peers that earned trust are kept in addition. If they leave too little room
for strangers, hearsay is dropped first, then first-hand strangers, since any node can connect but cannot sign
for others.

Only connections that this node opened count towards the wanted number: peers that connect by themselves
could otherwise keep it from choosing any. Half of that number of vouched peers is wanted in any case. In
addition, some peers that the application seeks are wanted; in all other respects they are strangers.

A dial takes longer than the interval in which the book is asked. So a peer that is being dialled counts as
chosen for two seconds; otherwise a node would dial as many peers again, and keep all of them. It counts no
longer than that, since an attacker may announce addresses that never answer.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from sapo_client.swarm.addresses import PeerAddress, Scope, network_group_of, network_of, scope_of
from sapo_client.swarm.limits import DialLimits, Rate
from sapo_client.swarm.lost import LostPeers
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.relays import NOTHING_SHORT, Shortage
from sapo_client.swarm.sought import SoughtFor, SoughtPeers
from sapo_client.swarm.vouched import VouchedPeers

STRANGERS_AT_ONE_HOST: Final = Rate(per_second=0.2, burst=32)
"""Rate of dials of strangers per host: peer ids are free, and an attacker may announce a victim's address."""

_MAX_HOSTS: Final = 4096  # as many as a full book of default limits can name


class Proof(IntEnum):
    """How an address is known, the weakest kind first."""

    UNSIGNED = 0
    SIGNED = 1
    MET = 2


_STRONGEST_FIRST: Final = tuple(reversed(Proof))


@dataclass(slots=True)
class _Entry:
    bootstrap: bool
    source: str
    """The source network: that of the peer that sent the address, or its own if it was reached."""
    by_proof: dict[Proof, list[PeerAddress]] = field(default_factory=lambda: {proof: [] for proof in Proof})
    known: list[PeerAddress] = field(default_factory=list)
    """All of them, the strongest kind first."""
    proof: Proof = Proof.UNSIGNED
    """The strongest kind of them; it and `known` are maintained by `add`, since the book is scanned often."""
    failures: int = 0
    next_dial_seconds: float = 0.0
    reached_seconds: float = 0.0

    @property
    def next_address(self) -> PeerAddress:
        """Return the address to dial next, which changes with each failure; there must be one."""
        return self.known[self.failures % len(self.known)]

    @property
    def addresses(self) -> list[PeerAddress]:
        """Return the addresses, the one to dial next first."""
        place = self.failures % len(self.known) if self.known else 0
        return self.known[place:] + self.known[:place]

    def add(self, address: PeerAddress, limit: int, proof: Proof) -> None:
        """Insert a new address before those of its kind; the oldest ones of the weakest kind are dropped
        first."""
        if address in self.known:
            before = next(kind for kind in _STRONGEST_FIRST if address in self.by_proof[kind])
            if before >= proof:
                return
            self.by_proof[before].remove(address)
        self.by_proof[proof].insert(0, address)
        self.known, room = [], limit
        for kind in _STRONGEST_FIRST:
            of_kind = self.by_proof[kind]
            del of_kind[room:]
            room -= len(of_kind)
            self.known += of_kind
        self.proof = next(kind for kind in _STRONGEST_FIRST if self.by_proof[kind])


class AddressBook:
    """Known peers with their addresses and the state of their back-off."""

    def __init__(
        self, own_peer_id: str, limits: DialLimits, rng: random.Random, vouched: VouchedPeers | None = None
    ) -> None:
        self._own_peer_id = own_peer_id
        self._vouched = VouchedPeers() if vouched is None else vouched
        self._limits = limits
        self._rng = rng
        self._entries: dict[str, _Entry] = {}
        self._opening: dict[str, float] = {}
        self._dials = KeyedBuckets(STRANGERS_AT_ONE_HOST, _MAX_HOSTS)
        self._sought = SoughtPeers(limits, self._vouched, rng)
        self._lost = LostPeers(limits)

    def __len__(self) -> int:
        return len(self._entries)

    def add_bootstrap(self, address: PeerAddress) -> None:
        """Add a peer that is never dropped."""
        if self._is_of_use(address):
            entry = self._entries.setdefault(address.peer_id, _Entry(bootstrap=True, source=address.network))
            entry.bootstrap = True
            entry.add(address, self._limits.max_addresses_per_peer, Proof.MET)

    def source_scope(self, peer_id: str) -> Scope:
        """Return the region of whoever told a peer's address; this machine for bootstrap peers."""
        entry = self._entries.get(peer_id)
        if entry is None or entry.bootstrap:
            return Scope.MACHINE
        return scope_of(entry.source.partition("/")[0])

    def learn(self, addresses: Iterable[PeerAddress], source_host: str) -> None:
        """Add addresses that a peer sent; the newest address of a peer is tried first.

        Args:
            source_host: the IP address at which that peer is connected.
        """
        for address in filter(self._is_of_use, addresses):
            self._learn(address, source_host, Proof.UNSIGNED)

    def learn_signed(self, addresses: Iterable[PeerAddress], source_host: str) -> None:
        """Add addresses that their own peers signed, whoever passed them on.

        Args:
            source_host: the IP address at which the peer that sent them is connected.
        """
        for address in filter(self._is_of_use, addresses):
            self._learn(address, source_host, Proof.SIGNED)

    def learn_first_hand(self, addresses: Iterable[PeerAddress], source_host: str | None = None) -> None:
        """Add addresses that their own peers sent over a connection that proves who they are.

        Args:
            source_host: the IP address at which the peer is connected; None if it was reached at its own.
        """
        for address in filter(self._is_of_use, addresses):
            self._learn(address, source_host or address.host, Proof.MET)

    def _learn(self, address: PeerAddress, source_host: str, proof: Proof) -> None:
        entry = self._entries.get(address.peer_id)
        if entry is None or (entry.proof < proof and not self._is_kept(address.peer_id, entry)):
            entry = self._room(address, source_host, proof)
        if entry is not None:
            entry.add(address, self._limits.max_addresses_per_peer, proof)

    def seek(
        self,
        sought: Mapping[str, SoughtFor],
        short: Mapping[int, Shortage] = NOTHING_SHORT,
        own: Collection[int] = (),
    ) -> None:
        """Want some of these peers, by peer id, and no others, beyond the usual number.

        Args:
            short: the islands of which this node receives too few messages; further members of them are
                wanted.
            own: the islands that this node publishes on; the member chosen last is replaced from time to
                time.
        """
        self._sought.replace(sought, short, own)

    def _is_of_use(self, address: PeerAddress) -> bool:
        return address.peer_id != self._own_peer_id and not address.unspecified

    def _is_kept(self, peer_id: str, entry: _Entry) -> bool:
        return entry.bootstrap or peer_id in self._lost or self._vouched.has_earned(peer_id)

    def _room(self, address: PeerAddress, host: str, proof: Proof) -> _Entry | None:
        """Return the new entry of a peer, or None if the book has no room for it.

        A peer that was known by a weaker proof moves to the part for this one, with its addresses.
        """
        known, source = self._entries.pop(address.peer_id, None), network_of(host)
        if not self._make_room(address.peer_id, source, proof):
            return None
        entry = self._entries[address.peer_id] = known or _Entry(bootstrap=False, source=source)
        entry.source = source
        return entry

    def _make_room(self, peer_id: str, source: str, proof: Proof) -> bool:
        """Drop a stranger if the book, or its part for this kind of stranger, is full; return whether there
        is room."""
        half = self._limits.max_known_peers // 2
        if len(self._entries) < half // 2:
            return True
        full = len(self._entries) >= self._limits.max_known_peers
        unsigned, signed, met = self._strangers()
        if self._vouched.has_earned(peer_id):
            return not full or self._forget_one_of(unsigned or signed or met, source)
        if proof is Proof.MET:
            if len(met) >= self._limits.max_known_peers - half:
                return self._forget_one_of(met, source)
            return not full or self._forget_one_of(unsigned or met or signed, source)
        if proof is Proof.SIGNED and len(signed) >= half // 2:
            return self._forget_one_of(signed, source)
        weakest = unsigned if proof is Proof.UNSIGNED else unsigned or signed
        return not (full or len(unsigned) + len(signed) >= half) or self._forget_one_of(weakest, source)

    def _strangers(self) -> tuple[list[tuple[str, _Entry]], ...]:
        """Return the strangers by kind: oldest first, wanted ones at the end."""
        usual: dict[Proof, list[tuple[str, _Entry]]] = {proof: [] for proof in Proof}
        wanted: dict[Proof, list[tuple[str, _Entry]]] = {proof: [] for proof in Proof}
        for peer_id, entry in self._entries.items():
            is_vouched = peer_id in self._vouched
            if (is_vouched and self._vouched.has_earned(peer_id)) or entry.bootstrap or peer_id in self._lost:
                continue  # as `_is_kept`, with one question about most of them
            is_wanted = is_vouched or peer_id in self._sought
            (wanted if is_wanted else usual)[entry.proof].append((peer_id, entry))
        return tuple(usual[proof] + wanted[proof] for proof in Proof)

    def _forget_one_of(self, strangers: list[tuple[str, _Entry]], source: str) -> bool:
        """Drop the oldest entry of the source network with most entries; return whether there was one.

        Args:
            source: the source network of the new entry, which is counted too.
        """
        by_source = Counter([source, *(entry.source for _, entry in strangers)])
        limit = max(by_source.values(), default=0)
        for peer_id, entry in strangers:
            if by_source[entry.source] == limit:
                del self._entries[peer_id]
                return True
        return False

    def addresses_of(self, peer_id: str) -> tuple[PeerAddress, ...]:
        """Return the known addresses of a peer, the one to dial next first."""
        entry = self._entries.get(peer_id)
        return tuple(entry.addresses) if entry else ()

    def addresses(self, *, first_hand: bool = False) -> tuple[PeerAddress, ...]:
        """Return one address of each known peer, or its newest first-hand one of each that has any."""
        if first_hand:
            met = (entry.by_proof[Proof.MET] for entry in self._entries.values())
            return tuple(addresses[0] for addresses in met if addresses)
        return tuple(entry.next_address for entry in self._entries.values() if entry.known)

    def due(
        self, connected: Collection[str], chosen: Collection[str], now_seconds: float
    ) -> tuple[PeerAddress, ...]:
        """Return the addresses to dial now: lost peers, sought ones, others up to the targets.

        Args:
            connected: peers that are connected, whoever opened the connection.
            chosen: those of them to which this node opened a connection.
            now_seconds: the clock of the back-offs.
        """
        chosen = self._with_opening(chosen, now_seconds)
        ready = self._ready(connected, now_seconds)
        lost = [entry.next_address for _, entry in ready if entry.bootstrap]
        others = [entry.next_address for _, entry in ready if not entry.bootstrap]
        self._rng.shuffle(others)  # shuffled, so that nodes with the same list dial different peers
        missed = [address for address in others if address.peer_id in self._lost]
        lost += missed[: self._lost.places(chosen)]
        trusted: list[PeerAddress] = []
        strangers: list[PeerAddress] = []
        for address in others:
            if not (lost and address in lost):
                (trusted if address.peer_id in self._vouched else strangers).append(address)
        first = self._vouched_first(trusted, chosen)
        others = [*(address for address in trusted if address not in first), *strangers]
        with_first = [*chosen, *(address.peer_id for address in first)]
        missing = self._sought.missing(
            others, with_first, lambda each: self._may_dial(each, now_seconds), now_seconds
        )
        taken = {*first, *missing}
        rest = [address for address in trusted + strangers if address not in taken]
        self._rng.shuffle(rest)
        usual = len(chosen) - self._sought.beyond(chosen) - self._lost.beyond(chosen)
        wanted = max(0, self._sought.usual - usual - len(lost) - len(first))
        return tuple(lost + first + missing + self._spared(rest, wanted, now_seconds))

    def _with_opening(self, chosen: Collection[str], now_seconds: float) -> list[str]:
        """Return the chosen peers and those whose dial began lately and has not ended."""
        since_seconds = now_seconds - self._limits.opening_seconds
        self._opening = {each: when for each, when in self._opening.items() if when > since_seconds}
        return [*chosen, *(each for each in self._opening if each not in chosen)]

    def giving_way(
        self, connected: Collection[str], chosen: Collection[str], now_seconds: float
    ) -> str | None:
        """Return a chosen peer to disconnect, without a penalty, to make room for another member of its
        island.

        It is not dialled for some minutes, and does not count as lost. Arguments as for `due`.
        """
        candidates = [entry.next_address for _, entry in self._ready(connected, now_seconds)]
        peer_id = self._sought.giving_way(candidates, chosen, now_seconds)
        if peer_id is not None:
            self._lost.give_up(peer_id)
        return peer_id

    def _ready(self, connected: Collection[str], now_seconds: float) -> list[tuple[str, _Entry]]:
        """Return the peers that may be dialled now, without those that were replaced lately."""
        return [
            (peer_id, entry)
            for peer_id, entry in self._entries.items()
            if peer_id not in connected
            and entry.next_dial_seconds <= now_seconds
            and entry.known
            and not self._sought.gave_way(peer_id, now_seconds)
        ]

    def _vouched_first(self, trusted: Iterable[PeerAddress], chosen: Collection[str]) -> list[PeerAddress]:
        """Return vouched peers to dial in any case: those with earned trust first, then bonded ones.

        Peers that connected themselves are not counted: attackers with bonds or earned trust could otherwise
        keep a node from dialling others.
        """
        places = max(0, self._limits.vouched_peers - self._vouched.earned_among(chosen))
        listed = list(trusted)
        earned = [each for each in listed if self._vouched.has_earned(each.peer_id)][:places]
        places = max(0, places - len(earned) - self._vouched.bonded_among(chosen))
        return earned + [each for each in listed if not self._vouched.has_earned(each.peer_id)][:places]

    def _spared(self, addresses: Iterable[PeerAddress], limit: int, now_seconds: float) -> list[PeerAddress]:
        """Return the first addresses whose host was not dialled too often."""
        found: list[PeerAddress] = []
        for address in addresses:
            if len(found) == limit:
                break
            if self._may_dial(address, now_seconds):
                found.append(address)
        return found

    def _may_dial(self, address: PeerAddress, now_seconds: float) -> bool:
        """Take one of the dials at the address's host, if there is one."""
        return self._dials.take(address.network, now_seconds)

    def dialling(self, peer_id: str, now_seconds: float) -> None:
        """Record that a dial starts: no other for this peer until it ended."""
        self._entries[peer_id].next_dial_seconds = now_seconds + self._limits.dial_timeout_seconds * 2
        self._opening[peer_id] = now_seconds

    def reached(self, peer_id: str, now_seconds: float) -> None:
        """Record that a connection opened."""
        self._opening.pop(peer_id, None)
        entry = self._entries.get(peer_id)
        if entry is not None:
            entry.reached_seconds = now_seconds

    def chose(self, address: PeerAddress, now_seconds: float) -> None:
        """Record that this node opened a connection at an address."""
        self._lost.chose(address.peer_id, network_group_of(address.host), now_seconds)

    def lost(self, peer_id: str, now_seconds: float) -> None:
        """Record that a connection ended: dial again soon, unless it ended at once, as a refusal does."""
        self._lost.left(peer_id, now_seconds)
        entry = self._entries.get(peer_id)
        if entry is None:
            return
        if now_seconds - entry.reached_seconds < self._limits.settled_seconds:
            self.failed(peer_id, now_seconds)
            return
        entry.failures = 0
        entry.next_dial_seconds = now_seconds + self._backoff_seconds(0)

    def failed(self, peer_id: str, now_seconds: float) -> None:
        """Record that a dial failed: wait longer, try the next address; drop a stranger in the end."""
        self._opening.pop(peer_id, None)
        entry = self._entries.get(peer_id)
        if entry is None:
            return
        entry.failures += 1
        self._lost.forget_old(now_seconds)
        if not self._is_kept(peer_id, entry) and entry.failures >= self._limits.max_failures:
            del self._entries[peer_id]
            return
        entry.next_dial_seconds = now_seconds + self._backoff_seconds(entry.failures)

    def _backoff_seconds(self, failures: int) -> float:
        doubled = self._limits.first_backoff_seconds * 2.0 ** min(failures, 30)
        return min(self._limits.max_backoff_seconds, doubled) * self._rng.uniform(0.5, 1.0)
