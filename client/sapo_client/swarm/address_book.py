"""Decides which peers to dial, at which address and when. Pure; clock and random generator are passed in.

Bootstrap peers are dialled for ever, with a back-off that doubles up to a ceiling. Peers learned from
others are dialled only while more peers are wanted, and dropped after some failures, unless they are vouched
for: a partition of some minutes must not make trusted peers strangers.

What a peer says of itself over its own connection, and an address at which it was reached, are *first-hand*.
What others say of it is unverified: it never replaces a first-hand address, and is tried after it.

Only connections that this node opened count towards the wanted number: peers that connect by themselves
could otherwise keep it from choosing any. Half of that number is wanted of vouched peers in any case.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits, Rate
from sapo_client.swarm.rate_limit import TokenBucket
from sapo_client.swarm.vouched import VouchedPeers

STRANGERS_AT_ONE_HOST: Final = Rate(per_second=0.2, burst=32)
"""Dials of strangers at one host: peer ids are free, and anybody may say that they are at a victim's."""

_MOST_HOSTS: Final = 4096  # as many as a full book of default limits can name


@dataclass(slots=True)
class _Entry:
    bootstrap: bool
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
        self._buckets: dict[str, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add_bootstrap(self, address: PeerAddress) -> None:
        """Add a peer that is never dropped."""
        self._add(address, bootstrap=True)

    def learn(self, addresses: Iterable[PeerAddress]) -> None:
        """Add addresses that a peer sent; the newest address of a peer is tried first."""
        for address in addresses:
            self._add(address, bootstrap=False)

    def learn_first_hand(self, addresses: Iterable[PeerAddress]) -> None:
        """Add addresses that their own peers sent over a connection that proves who they are."""
        for address in addresses:
            self._add(address, bootstrap=False, first_hand=True)

    def _add(self, address: PeerAddress, *, bootstrap: bool, first_hand: bool = False) -> None:
        if address.peer_id == self._own_peer_id or address.unspecified:
            return
        entry = self._entries.get(address.peer_id)
        if entry is None:
            full = len(self._entries) >= self._limits.max_known_peers
            if full and not bootstrap and not (address.peer_id in self._vouched and self._drop_stranger()):
                return
            entry = self._entries[address.peer_id] = _Entry(bootstrap)
        entry.bootstrap = entry.bootstrap or bootstrap
        entry.add(address, self._limits.max_addresses_per_peer, first_hand=first_hand or bootstrap)

    def _drop_stranger(self) -> bool:
        """Forget one learned peer that is not vouched for; whether there was one."""
        for peer_id, entry in self._entries.items():
            if not entry.bootstrap and peer_id not in self._vouched:
                del self._entries[peer_id]
                return True
        return False

    def addresses_of(self, peer_id: str) -> tuple[PeerAddress, ...]:
        """Return the known addresses of a peer, the one to dial next first."""
        entry = self._entries.get(peer_id)
        return tuple(entry.addresses) if entry else ()

    def addresses(self) -> tuple[PeerAddress, ...]:
        """Return one address of each known peer."""
        return tuple(entry.addresses[0] for entry in self._entries.values() if entry.addresses)

    def due(
        self, connected: Collection[str], chosen: Collection[str], now_seconds: float
    ) -> tuple[PeerAddress, ...]:
        """Return the addresses to dial now: every lost bootstrap peer, others up to the target numbers.

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
        rest = trusted[len(first) :] + strangers
        self._rng.shuffle(rest)
        wanted = max(0, self._limits.target_peers - len(chosen) - len(lost) - len(first))
        return tuple(lost + first + self._spared(rest, wanted, now_seconds))

    def _spared(self, addresses: Iterable[PeerAddress], most: int, now_seconds: float) -> list[PeerAddress]:
        """Return the first ones of which the host was not dialled too often."""
        found: list[PeerAddress] = []
        for address in addresses:
            if len(found) == most:
                break
            bucket = self._buckets.setdefault(
                address.network, TokenBucket(STRANGERS_AT_ONE_HOST, now_seconds)
            )
            if bucket.take(1, now_seconds):
                found.append(address)
            if len(self._buckets) > _MOST_HOSTS:
                del self._buckets[next(iter(self._buckets))]
        return found

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
        kept = entry.bootstrap or peer_id in self._vouched
        if not kept and entry.failures >= self._limits.max_failures:
            del self._entries[peer_id]
            return
        entry.next_dial_seconds = now_seconds + self._backoff_seconds(entry.failures)

    def _backoff_seconds(self, failures: int) -> float:
        doubled = self._limits.first_backoff_seconds * 2.0 ** min(failures, 30)
        return min(self._limits.max_backoff_seconds, doubled) * self._rng.uniform(0.5, 1.0)
