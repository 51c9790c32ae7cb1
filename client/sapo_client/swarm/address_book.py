"""Whom to dial, where and when. Pure; clock and chance are passed in.

Bootstrap peers are dialled for ever, with a back-off that doubles up to a ceiling. Peers learned from
others are dialled only while more peers are wanted, and forgotten after some failures: what others
say about addresses is hearsay.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits


@dataclass(slots=True)
class _Entry:
    bootstrap: bool
    addresses: list[PeerAddress] = field(default_factory=list)
    failures: int = 0
    next_dial_seconds: float = 0.0
    reached_seconds: float = 0.0


class AddressBook:
    """Known peers with their addresses and the state of their back-off."""

    def __init__(self, own_peer_id: str, limits: DialLimits, chance: random.Random) -> None:
        self._own_peer_id = own_peer_id
        self._limits = limits
        self._chance = chance
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add_bootstrap(self, address: PeerAddress) -> None:
        """Keep a peer for ever."""
        self._note(address, bootstrap=True)

    def learn(self, addresses: Iterable[PeerAddress]) -> None:
        """Note what somebody said; the newest address of a peer is tried first."""
        for address in addresses:
            self._note(address, bootstrap=False)

    def _note(self, address: PeerAddress, *, bootstrap: bool) -> None:
        if address.peer_id == self._own_peer_id or address.unspecified:
            return
        entry = self._entries.get(address.peer_id)
        if entry is None:
            if not bootstrap and len(self._entries) >= self._limits.max_known_peers:
                return
            entry = self._entries[address.peer_id] = _Entry(bootstrap)
        entry.bootstrap = entry.bootstrap or bootstrap
        if address not in entry.addresses:
            entry.addresses.insert(0, address)
            del entry.addresses[self._limits.max_addresses_per_peer :]

    def addresses_of(self, peer_id: str) -> tuple[PeerAddress, ...]:
        """Known addresses, the one to dial next first."""
        entry = self._entries.get(peer_id)
        return tuple(entry.addresses) if entry else ()

    def addresses(self) -> tuple[PeerAddress, ...]:
        """One address of everybody known."""
        return tuple(entry.addresses[0] for entry in self._entries.values() if entry.addresses)

    def due(self, connected: Collection[str], now_seconds: float) -> tuple[PeerAddress, ...]:
        """Addresses to dial now: every lost bootstrap peer, others up to the wanted number."""
        ready = [
            (peer_id, entry)
            for peer_id, entry in self._entries.items()
            if peer_id not in connected and entry.next_dial_seconds <= now_seconds and entry.addresses
        ]
        lost = [entry.addresses[0] for _, entry in ready if entry.bootstrap]
        others = [entry.addresses[0] for _, entry in ready if not entry.bootstrap]
        wanted = max(0, self._limits.target_peers - len(connected) - len(lost))
        self._chance.shuffle(others)  # nodes that learned the same list spread over it
        return tuple(lost + others[:wanted])

    def dialling(self, peer_id: str, now_seconds: float) -> None:
        """A dial starts: none other for this peer until it ended."""
        self._entries[peer_id].next_dial_seconds = now_seconds + self._limits.dial_timeout_seconds * 2

    def reached(self, peer_id: str, now_seconds: float) -> None:
        """A connection opened."""
        entry = self._entries.get(peer_id)
        if entry is not None:
            entry.reached_seconds = now_seconds

    def lost(self, peer_id: str, now_seconds: float) -> None:
        """A connection ended: dial again soon, unless the peer only opened it to close it."""
        entry = self._entries.get(peer_id)
        if entry is None:
            return
        if now_seconds - entry.reached_seconds < self._limits.settled_seconds:
            self.failed(peer_id, now_seconds)
            return
        entry.failures = 0
        entry.next_dial_seconds = now_seconds + self._backoff_seconds(0)

    def failed(self, peer_id: str, now_seconds: float) -> None:
        """A dial failed: wait longer, try the next address; give up on hearsay in the end."""
        entry = self._entries.get(peer_id)
        if entry is None:
            return
        entry.failures += 1
        if not entry.bootstrap and entry.failures >= self._limits.max_failures:
            del self._entries[peer_id]
            return
        entry.addresses.append(entry.addresses.pop(0))
        entry.next_dial_seconds = now_seconds + self._backoff_seconds(entry.failures)

    def _backoff_seconds(self, failures: int) -> float:
        doubled = self._limits.first_backoff_seconds * 2.0 ** min(failures, 30)
        return min(self._limits.max_backoff_seconds, doubled) * self._chance.uniform(0.5, 1.0)
