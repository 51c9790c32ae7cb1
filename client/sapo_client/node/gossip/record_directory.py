"""The newest valid address record of each known node, bounded by island, account and source. Pure.

Keys and, without a chain, accounts cost nothing, so records can be made in any number. Where an island is
full, the network that most of its records came from loses the oldest: who tells most displaces nobody else's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sapo_client.swarm.addresses import PeerAddress, network_of, parse_address
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.transport import FoundPeer
from sapo_protocol.eip712 import Domain
from sapo_protocol.identifiers import Account, NodeId, SwarmId
from sapo_protocol.islands.address_record import MAX_RECORDS, AddressRecord, open_record, parse_record

MOST_ON_ISLAND: Final = 16
MOST_OF_ACCOUNT: Final = 4  # as many nodes as count for an account
MOST_RECORDS: Final = 1024  # 2 MiB; all that 64 islands may have

CHECKS_OF_SOURCE: Final = Rate(per_second=1.0, burst=64)
"""Records of one network whose signatures are checked: about half a millisecond each."""

PLACED_SECONDS: Final = 30.0
"""Between two computations of all islands: they take some milliseconds, and any peer may ask."""

_MOST_SOURCES: Final = 256

IslandsOf = Callable[[NodeId, Account, float], frozenset[int]]
"""The islands that a node of an account carries at a time, as far as they are known."""


@dataclass(frozen=True, slots=True)
class Teller:
    """A peer that sends a record, and the IP address from which it is connected."""

    peer_id: str
    host: str


@dataclass(slots=True)
class _Kept:
    record: AddressRecord
    addresses: tuple[PeerAddress, ...]
    teller: Teller
    islands: frozenset[int]


class RecordDirectory:
    """Records of other nodes.

    Args:
        own: the own node key, whose records are not kept.
        islands_of: says on which islands a node is; nothing that a record says counts for that.
    """

    def __init__(
        self, swarm_id: SwarmId, domain: Domain, own: NodeId, islands_of: IslandsOf, rng: random.Random
    ) -> None:
        self._swarm_id = swarm_id
        self._domain = domain
        self._own = own
        self._islands_of = islands_of
        self._rng = rng
        self._kept: dict[NodeId, _Kept] = {}
        self._checks = KeyedBuckets(CHECKS_OF_SOURCE, _MOST_SOURCES)
        self._placed_seconds = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, message: bytes, teller: Teller, now_seconds: float) -> bool:
        """Keep a record if it is valid, newer than what is known of its node, and there is room for it.

        It counts among those of its first teller, until the node tells it itself: else whoever is quick to
        pass records on would decide in whose number they count, and so which are forgotten first.

        Returns:
            Whether it is kept.
        """
        unchecked = parse_record(message, self._swarm_id)
        if unchecked is None or unchecked.node == self._own:
            return False
        known = self._kept.get(unchecked.node)
        if known is not None and unchecked.made_seconds <= known.record.made_seconds:
            return False
        addresses = _usable(unchecked.addresses, unchecked.node, teller.host)
        if not addresses or not self._checks.take(network_of(teller.host), now_seconds):
            return False
        record = open_record(unchecked, self._swarm_id, self._domain)
        if record is None or not record.counts_at(now_seconds):
            return False
        certificate = record.certificate
        islands = self._islands_of(certificate.node, certificate.account, now_seconds)
        if not islands:
            return False
        first_hand = teller.peer_id == peer_id_from_key(certificate.node)
        told_by = teller if known is None or first_hand else known.teller
        kept = _Kept(record, addresses, told_by, islands)
        self._kept.pop(certificate.node, None)
        self._kept[certificate.node] = kept
        self._bound(kept)
        return certificate.node in self._kept

    def members(self, islands: Iterable[int], now_seconds: float) -> tuple[FoundPeer, ...]:
        """Return the nodes that are on one of the islands, in a random order, each with those it is on."""
        wanted = frozenset(islands)
        return tuple(
            FoundPeer(
                peer_id_from_key(node),
                tuple(map(str, kept.addresses)),
                kept.teller.host,
                kept.islands & wanted,
            )
            for node, kept in self._on(wanted, now_seconds)
        )

    def answer(self, islands: Iterable[int], asker: str, now_seconds: float) -> tuple[bytes, ...]:
        """Return records of nodes on the islands, for a peer at an IP address to which they mean the same."""
        fitting = (
            kept.record.message
            for _, kept in self._on(frozenset(islands), now_seconds)
            if all(address.means_the_same(asker) for address in kept.addresses)
        )
        return tuple(islice(fitting, MAX_RECORDS))

    def _on(self, islands: frozenset[int], now_seconds: float) -> list[tuple[NodeId, _Kept]]:
        """Return what is kept of nodes on the islands now; what does not count any more is forgotten."""
        self._kept = {n: kept for n, kept in self._kept.items() if kept.record.counts_at(now_seconds)}
        if abs(now_seconds - self._placed_seconds) >= PLACED_SECONDS:
            self._placed_seconds = now_seconds
            for node, kept in self._kept.items():
                kept.islands = self._islands_of(node, kept.record.certificate.account, now_seconds)
        found = [(node, kept) for node, kept in self._kept.items() if kept.islands & islands]
        self._rng.shuffle(found)
        return found

    def _bound(self, newest: _Kept) -> None:
        """Forget records where the newest one makes too many of them."""
        account = newest.record.certificate.account
        own = [node for node, kept in self._kept.items() if kept.record.certificate.account == account]
        for node in own[:-MOST_OF_ACCOUNT]:
            del self._kept[node]
        for island in sorted(newest.islands):
            there = [node for node, kept in self._kept.items() if island in kept.islands]
            if len(there) > MOST_ON_ISLAND:
                self._forget_one_of(there)
        if len(self._kept) > MOST_RECORDS:
            self._forget_one_of(list(self._kept))

    def _forget_one_of(self, nodes: list[NodeId]) -> None:
        """Forget the oldest record of the network that most of these came from."""
        sources = [network_of(self._kept[node].teller.host) for node in nodes]
        [(most, _)] = Counter(sources).most_common(1)
        del self._kept[nodes[sources.index(most)]]


def _usable(texts: Iterable[str], node: NodeId, teller: str) -> tuple[PeerAddress, ...]:
    """Return a record's addresses, or none if one cannot be dialled or may mean another host here."""
    peer_id = peer_id_from_key(node)
    parsed = tuple(address for address in map(parse_address, texts) if address is not None)
    for address in parsed:
        if address.unspecified or address.peer_id != peer_id or not address.means_the_same(teller):
            return ()
    return parsed
