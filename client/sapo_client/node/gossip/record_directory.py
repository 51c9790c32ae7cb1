"""The newest valid address record of each known node, bounded by island, account and source. No I/O.

Keys and, without a gate, accounts cost nothing, so records can be made in any number. If an island is full,
`RecordPlaces` decides which record is dropped.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from sapo_client.node.gossip.record_places import MAX_ON_ISLAND, Grounds, PlaceClaim, RecordPlaces
from sapo_client.swarm.addresses import PeerAddress, network_group_of, network_of, parse_address
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.transport import FoundPeer
from sapo_protocol.eip712 import Domain
from sapo_protocol.identifiers import Account, NodeId, SwarmId
from sapo_protocol.islands.address_record import MAX_RECORDS, AddressRecord, open_record, parse_record

MAX_OF_ACCOUNT: Final = 4  # as many nodes as count for an account
MAX_KEPT: Final = 1024  # 2 MiB; all that 64 islands may have, and a part of those of more

CHECKS_OF_SOURCE: Final = Rate(per_second=1.0, burst=64)
"""Rate of checked records per network; the signatures of one take about half a millisecond."""

PLACED_SECONDS: Final = 30.0
"""Interval of computing all islands and vouched accounts, whose cost any peer's request could cause
otherwise."""

RECALLED_SECONDS: Final = 7 * 24 * 3600
"""Largest age of a saved record: a server's address may be valid for months, others change."""

_MAX_SOURCES: Final = 256

IslandsOf = Callable[[NodeId, Account, float], frozenset[int]]
"""Returns the known islands that a node of an account carries at a time."""

Vouches = Callable[[Account], bool]
"""Whether an account is vouched for, so that having many such accounts has a cost."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A peer that sends a record: its IP address, and whether this node chose to connect to it."""

    peer_id: str
    host: str
    chosen: bool = False


@dataclass(slots=True)
class _Kept:
    """A record, and the peer to which it is attributed: a chosen one, the record's own node, or the first
    sender."""

    record: AddressRecord
    addresses: tuple[PeerAddress, ...]
    host: str
    ascribed: RecordSource
    islands: frozenset[int]
    vouched: bool


class RecordDirectory:
    """Records of other nodes.

    Args:
        own: the own node key, whose records are not kept.
        islands_of: returns the islands of a node; a record itself cannot state them.
        vouches: whether an account is vouched for; by default none is.
        carried: returns the islands that this node carries, whose records are dropped last.
        max_records: limit for all islands together.
    """

    def __init__(
        self,
        swarm_id: SwarmId,
        domain: Domain,
        own: NodeId,
        islands_of: IslandsOf,
        rng: random.Random,
        *,
        vouches: Vouches = lambda _: False,
        carried: Callable[[], frozenset[int]] = frozenset,
        max_records: int = MAX_KEPT,
    ) -> None:
        self._swarm_id = swarm_id
        self._domain = domain
        self._own = own
        self._islands_of = islands_of
        self._rng = rng
        self._vouches = vouches
        self._carried = carried
        self._max_records = max_records
        self._places = RecordPlaces(rng.randbytes(32))
        self._kept: dict[NodeId, _Kept] = {}
        self._checks = KeyedBuckets(CHECKS_OF_SOURCE, _MAX_SOURCES)
        self._placed_seconds = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def pairs(self) -> tuple[tuple[NodeId, Account], ...]:
        """Return node id and account of every record."""
        return tuple((node, kept.record.certificate.account) for node, kept in self._kept.items())

    def take(self, message: bytes, source: RecordSource, now_seconds: float) -> bool:
        """Keep a record if it is valid, newer than what is known of its node, and there is room for it.

        It is attributed to its first sender, until the node itself sends it or a peer does that this node
        chose; otherwise the fastest forwarder would become the source of many records. For a record that is
        known already only this is updated.

        Returns:
            Whether it is kept.
        """
        unchecked = parse_record(message, self._swarm_id)
        if unchecked is None or unchecked.node == self._own:
            return False
        known = self._kept.get(unchecked.node)
        if known is not None and unchecked.made_seconds <= known.record.made_seconds:
            if known.record.message == message:
                known.ascribed = _ascribed(known, source, unchecked.node)
            return False
        addresses = _usable(unchecked.addresses, unchecked.node, source.host)
        if not addresses or not self._checks.take(network_of(source.host), now_seconds):
            return False
        record = open_record(unchecked, self._swarm_id, self._domain)
        if record is None or not record.counts_at(now_seconds):
            return False
        return self._keep(record, addresses, source, now_seconds)

    def recall(self, message: bytes, source: RecordSource, now_seconds: float) -> FoundPeer | None:
        """Take a saved record, checked like any other.

        An expired one is not kept, and so not sent to peers, but its addresses are returned to be dialled.

        Args:
            source: the peer to which it was attributed.

        Returns:
            The node to dial; None if the record is kept, invalid or too old, or if its islands are unknown.
        """
        unchecked = parse_record(message, self._swarm_id)
        if unchecked is None or unchecked.node == self._own or unchecked.node in self._kept:
            return None
        addresses = _usable(unchecked.addresses, unchecked.node, source.host)
        record = open_record(unchecked, self._swarm_id, self._domain) if addresses else None
        if record is None or not record.certificate.covers(now_seconds):
            return None
        if record.counts_at(now_seconds):
            self._keep(record, addresses, source, now_seconds)
            return None
        if not 0 <= now_seconds - record.made_seconds < RECALLED_SECONDS:
            return None
        islands = self._islands_of(unchecked.node, record.certificate.account, now_seconds)
        return FoundPeer(
            peer_id=peer_id_from_key(unchecked.node),
            addresses=tuple(map(str, addresses)),
            source_host=source.host,
            islands=islands,
            source=network_group_of(source.host),
        )

    def saved(self, islands: Iterable[int], now_seconds: float) -> tuple[tuple[bytes, RecordSource], ...]:
        """Return the records of nodes on the islands, for the next start, each with the peer of its
        attribution."""
        return tuple(
            (kept.record.message, kept.ascribed) for _, kept in self._on(frozenset(islands), now_seconds)
        )

    def _keep(
        self,
        record: AddressRecord,
        addresses: tuple[PeerAddress, ...],
        source: RecordSource,
        now_seconds: float,
    ) -> bool:
        """Keep a checked record if there is room for it; return whether it is kept."""
        certificate = record.certificate
        islands = self._islands_of(certificate.node, certificate.account, now_seconds)
        if not islands:
            return False
        known = self._kept.pop(certificate.node, None)
        ascribed, vouched = _ascribed(known, source, certificate.node), self._vouches(certificate.account)
        kept = _Kept(record, addresses, source.host, ascribed, islands, vouched)
        self._kept[certificate.node] = kept
        self._bound(kept)
        return certificate.node in self._kept

    def members(self, islands: Iterable[int], now_seconds: float) -> tuple[FoundPeer, ...]:
        """Return the nodes that are on any of the islands, in random order, each with its islands among
        them."""
        wanted = frozenset(islands)
        return tuple(
            FoundPeer(
                peer_id_from_key(node),
                tuple(map(str, kept.addresses)),
                kept.host,
                kept.islands & wanted,
                network_group_of(kept.ascribed.host),
            )
            for node, kept in self._on(wanted, now_seconds)
        )

    def answer(self, islands: Iterable[int], asker: str, now_seconds: float) -> tuple[bytes, ...]:
        """Return records of nodes on the islands whose addresses are valid for a peer at an IP address.

        If there are too many, the islands get equal numbers.
        """
        asked = frozenset(islands)
        fitting = [
            kept
            for _, kept in self._on(asked, now_seconds)
            if all(address.means_the_same(asker) for address in kept.addresses)
        ]
        by_island = [[kept for kept in fitting if island in kept.islands] for island in sorted(asked)]
        in_turns = (kept for turn in zip_longest(*by_island) for kept in turn if kept is not None)
        return tuple(islice(dict.fromkeys(kept.record.message for kept in in_turns), MAX_RECORDS))

    def _on(self, islands: frozenset[int], now_seconds: float) -> list[tuple[NodeId, _Kept]]:
        """Return the records of nodes on the islands now, and drop expired ones.

        A node whose islands are unknown, because a beacon is missing, is kept, and on no island.
        """
        self._kept = {n: kept for n, kept in self._kept.items() if kept.record.counts_at(now_seconds)}
        if abs(now_seconds - self._placed_seconds) >= PLACED_SECONDS:
            self._placed_seconds = now_seconds
            for node, kept in self._kept.items():
                account = kept.record.certificate.account
                kept.islands = self._islands_of(node, account, now_seconds)
                kept.vouched = self._vouches(account)
        found = [(node, kept) for node, kept in self._kept.items() if kept.islands & islands]
        self._rng.shuffle(found)
        return found

    def _bound(self, newest: _Kept) -> None:
        """Drop records where the newest one exceeds a limit."""
        account = newest.record.certificate.account
        own = [node for node, kept in self._kept.items() if kept.record.certificate.account == account]
        for node in own[:-MAX_OF_ACCOUNT]:
            del self._kept[node]
        for island in sorted(newest.islands):
            there = self._there(island)
            if len(there) > MAX_ON_ISLAND:
                self._forget_one_of(there)
        if len(self._kept) > self._max_records:
            self._forget_one_of(self._of_the_fullest())

    def _there(self, island: int) -> list[NodeId]:
        return [node for node, kept in self._kept.items() if island in kept.islands]

    def _of_the_fullest(self) -> list[NodeId]:
        """Return the nodes of the island with most records, preferably one that this node does not carry."""
        carried = self._carried()
        foreign = {node: kept for node, kept in self._kept.items() if not kept.islands & carried}
        listed = foreign or self._kept
        [(fullest, _)] = Counter(each for kept in listed.values() for each in kept.islands).most_common(1)
        return [node for node, kept in listed.items() if fullest in kept.islands]

    def _forget_one_of(self, nodes: Iterable[NodeId]) -> None:
        del self._kept[self._places.last(self._claim(node) for node in nodes)]

    def _claim(self, node: NodeId) -> PlaceClaim:
        kept = self._kept[node]
        came_by = Grounds.CHOSEN if kept.ascribed.chosen else Grounds.CAME
        return PlaceClaim(
            node=node,
            account=kept.record.certificate.account,
            group=network_group_of(kept.ascribed.host),
            grounds=Grounds.VOUCHED if kept.vouched else came_by,
        )


def _ascribed(known: _Kept | None, source: RecordSource, node: NodeId) -> RecordSource:
    """Return the attribution of a record, which may be known already, after a peer has sent it."""
    if known is None or (source.chosen and not known.ascribed.chosen):
        return source
    first_hand = source.peer_id == peer_id_from_key(node)
    return source if first_hand and source.chosen is known.ascribed.chosen else known.ascribed


def _usable(texts: Iterable[str], node: NodeId, source: str) -> tuple[PeerAddress, ...]:
    """Return a record's addresses; none if one of them cannot be dialled or may mean another host here."""
    peer_id = peer_id_from_key(node)
    parsed = tuple(address for address in map(parse_address, texts) if address is not None)
    for address in parsed:
        if address.unspecified or address.peer_id != peer_id or not address.means_the_same(source):
            return ()
    return parsed
