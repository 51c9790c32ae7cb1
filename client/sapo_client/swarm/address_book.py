"""Decides which peers to dial, at which address and when. Pure; clock and random generator are passed in.

Bootstrap peers are dialled for ever, with a back-off that doubles up to a ceiling. Peers learned from
others are dialled only while more peers are wanted, and dropped after some failures, unless they are vouched
for: a partition of some minutes must not make trusted peers strangers.

What a peer says of itself over its own connection, and an address at which it was reached, are *first-hand*.
What others say of it is unverified: it never replaces a first-hand address, and is tried after it.
Peers that are known by hearsay alone have at most half of the book, other strangers the rest. Where a part is
full, the network that most of it came from loses the oldest: who talks most displaces nobody else.

Only connections that this node opened count towards the wanted number: peers that connect by themselves
could otherwise keep it from choosing any. Half of that number is wanted of vouched peers in any case.
Beyond it some peers are wanted that the application seeks; they are strangers in all other respects.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sapo_client.swarm.addresses import PeerAddress, network_of
from sapo_client.swarm.limits import DialLimits, Rate
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.sought import SoughtPeers
from sapo_client.swarm.vouched import VouchedPeers

STRANGERS_AT_ONE_HOST: Final = Rate(per_second=0.2, burst=32)
"""Dials of strangers at one host: peer ids are free, and anybody may say that they are at a victim's."""

_MOST_HOSTS: Final = 4096  # as many as a full book of default limits can name


@dataclass(slots=True)
class _Entry:
    bootstrap: bool
    source: str
    """The network that it came from: that of who told, or its own where it was reached."""
    first_hand: list[PeerAddress] = field(default_factory=list)
    hearsay: list[PeerAddress] = field(default_factory=list)
    failures: int = 0
    next_dial_seconds: float = 0.0
    reached_seconds: float = 0.0

    @property
    def addresses(self) -> list[PeerAddress]:
        """Return the addresses, the one to dial next first: each failure goes on to the next one."""
        known = self.first_hand + self.hearsay
        place = self.failures % len(known) if known else 0
        return known[place:] + known[:place]

    def add(self, address: PeerAddress, most: int, *, first_hand: bool) -> None:
        """Put a new address before those of its kind; the oldest ones of hearsay give way first."""
        if first_hand and address in self.hearsay:
            self.hearsay.remove(address)
        if address in self.addresses:
            return
        (self.first_hand if first_hand else self.hearsay).insert(0, address)
        del self.first_hand[most:]
        del self.hearsay[most - len(self.first_hand) :]


class AddressBook:
    """Known peers with their addresses and the state of their back-off."""

    def __init__(
        self, own_peer_id: str, limits: DialLimits, rng: random.Random, vouched: VouchedPeers | None = None
    ) -> None:
        self._own_peer_id = own_peer_id
        self._vouched = vouched or VouchedPeers()
        self._limits = limits
        self._rng = rng
        self._entries: dict[str, _Entry] = {}
        self._dials = KeyedBuckets(STRANGERS_AT_ONE_HOST, _MOST_HOSTS)
        self._sought = SoughtPeers(limits)

    def __len__(self) -> int:
        return len(self._entries)

    def add_bootstrap(self, address: PeerAddress) -> None:
        """Add a peer that is never dropped."""
        if self._is_of_use(address):
            entry = self._entries.setdefault(address.peer_id, _Entry(bootstrap=True, source=address.network))
            entry.bootstrap = True
            entry.add(address, self._limits.max_addresses_per_peer, first_hand=True)

    def learn(self, addresses: Iterable[PeerAddress], teller: str) -> None:
        """Add addresses that a peer sent; the newest address of a peer is tried first.

        Args:
            teller: the IP address at which that peer is connected.
        """
        for address in filter(self._is_of_use, addresses):
            entry = self._entries.get(address.peer_id) or self._room(address, teller, first_hand=False)
            if entry is not None:
                entry.add(address, self._limits.max_addresses_per_peer, first_hand=False)

    def learn_first_hand(self, addresses: Iterable[PeerAddress], teller: str | None = None) -> None:
        """Add addresses that their own peers sent over a connection that proves who they are.

        Args:
            teller: the IP address at which the peer is connected; unset for one that was reached at its own.
        """
        for address in filter(self._is_of_use, addresses):
            entry = self._entries.get(address.peer_id)
            if entry is None or not (entry.first_hand or self._is_kept(address.peer_id, entry)):
                entry = self._room(address, teller or address.host, first_hand=True)
            if entry is not None:
                entry.add(address, self._limits.max_addresses_per_peer, first_hand=True)

    def seek(self, islands: Mapping[str, frozenset[int]]) -> None:
        """Want some of these peers, and no others, beyond the usual number.

        Args:
            islands: by peer id, those for which it is wanted.
        """
        self._sought.replace(islands)

    def _is_of_use(self, address: PeerAddress) -> bool:
        return address.peer_id != self._own_peer_id and not address.unspecified

    def _is_kept(self, peer_id: str, entry: _Entry) -> bool:
        return entry.bootstrap or peer_id in self._vouched

    def _room(self, address: PeerAddress, host: str, *, first_hand: bool) -> _Entry | None:
        """Return the new entry of a peer, or None if the book has no room for it.

        One that was known by hearsay alone goes over to the first-hand part, its addresses with it.
        """
        known, source = self._entries.pop(address.peer_id, None), network_of(host)
        if not self._make_room(address.peer_id, source, first_hand=first_hand):
            return None
        entry = self._entries[address.peer_id] = known or _Entry(bootstrap=False, source=source)
        entry.source = source
        return entry

    def _make_room(self, peer_id: str, source: str, *, first_hand: bool) -> bool:
        """Forget a stranger where the book, or the part of it for this kind of stranger, is full."""
        most_heard = self._limits.max_known_peers // 2
        if len(self._entries) < most_heard:
            return True
        full = len(self._entries) >= self._limits.max_known_peers
        heard, met = self._strangers(first_hand=False), self._strangers(first_hand=True)
        if peer_id in self._vouched:
            return not full or self._forget_one_of(heard or met, source)
        if not first_hand:
            return not (full or len(heard) >= most_heard) or self._forget_one_of(heard, source)
        if len(met) >= self._limits.max_known_peers - most_heard:
            return self._forget_one_of(met, source)
        return not full or self._forget_one_of(heard or met, source)

    def _strangers(self, *, first_hand: bool) -> list[tuple[str, _Entry]]:
        """Return the peers that are not kept in any case, met or known by hearsay, oldest first."""
        return [
            (peer_id, entry)
            for peer_id, entry in self._entries.items()
            if bool(entry.first_hand) is first_hand and not self._is_kept(peer_id, entry)
        ]

    def _forget_one_of(self, strangers: list[tuple[str, _Entry]], source: str) -> bool:
        """Forget the oldest of the network that most of them would come from; whether there was one.

        Args:
            source: the network of the one that comes.
        """
        by_source = Counter([source, *(entry.source for _, entry in strangers)])
        most = max(by_source.values(), default=0)
        for peer_id, entry in strangers:
            if by_source[entry.source] == most:
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
            return tuple(entry.first_hand[0] for entry in self._entries.values() if entry.first_hand)
        return tuple(entry.addresses[0] for entry in self._entries.values() if entry.addresses)

    def due(
        self, connected: Collection[str], chosen: Collection[str], now_seconds: float
    ) -> tuple[PeerAddress, ...]:
        """Return the addresses to dial now: lost bootstrap peers, sought ones, others up to the targets.

        Args:
            connected: peers that are connected, whoever opened the connection.
            chosen: those of them to which this node opened a connection.
            now_seconds: the clock of the back-offs.
        """
        ready = [
            (peer_id, entry)
            for peer_id, entry in self._entries.items()
            if peer_id not in connected and entry.next_dial_seconds <= now_seconds and entry.addresses
        ]
        lost = [entry.addresses[0] for _, entry in ready if entry.bootstrap]
        others = [entry.addresses[0] for _, entry in ready if not entry.bootstrap]
        self._rng.shuffle(others)  # nodes that learned the same list dial different peers of it
        trusted = [address for address in others if address.peer_id in self._vouched]
        strangers = [address for address in others if address.peer_id not in self._vouched]
        first = trusted[: max(0, self._limits.vouched_peers - self._vouched.among(connected))]
        others = [*trusted[len(first) :], *strangers]
        with_first = [*chosen, *(address.peer_id for address in first)]
        missing = self._sought.missing(others, with_first, lambda each: self._may_dial(each, now_seconds))
        taken = {*first, *missing}
        rest = [address for address in trusted + strangers if address not in taken]
        self._rng.shuffle(rest)
        usual = len(chosen) - self._sought.beyond(chosen)
        wanted = max(0, self._limits.target_peers - usual - len(lost) - len(first))
        return tuple(lost + first + missing + self._spared(rest, wanted, now_seconds))

    def _spared(self, addresses: Iterable[PeerAddress], most: int, now_seconds: float) -> list[PeerAddress]:
        """Return the first ones of which the host was not dialled too often."""
        found: list[PeerAddress] = []
        for address in addresses:
            if len(found) == most:
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

    def reached(self, peer_id: str, now_seconds: float) -> None:
        """Record that a connection opened."""
        entry = self._entries.get(peer_id)
        if entry is not None:
            entry.reached_seconds = now_seconds

    def lost(self, peer_id: str, now_seconds: float) -> None:
        """Record that a connection ended: dial again soon, unless it ended at once, as a refusal does."""
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
        entry = self._entries.get(peer_id)
        if entry is None:
            return
        entry.failures += 1
        if not self._is_kept(peer_id, entry) and entry.failures >= self._limits.max_failures:
            del self._entries[peer_id]
            return
        entry.next_dial_seconds = now_seconds + self._backoff_seconds(entry.failures)

    def _backoff_seconds(self, failures: int) -> float:
        doubled = self._limits.first_backoff_seconds * 2.0 ** min(failures, 30)
        return min(self._limits.max_backoff_seconds, doubled) * self._rng.uniform(0.5, 1.0)
