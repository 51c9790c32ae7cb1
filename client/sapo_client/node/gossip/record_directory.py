"""The newest valid address record of each known node, bounded by island, account and source. Pure.

Keys and, without a gate, accounts cost nothing, so records can be made in any number. Where an island is full
`RecordPlaces` says which record gives way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from sapo_client.node.gossip.record_places import MOST_ON_ISLAND, Grounds, PlaceClaim, RecordPlaces
from sapo_client.swarm.addresses import PeerAddress, network_group_of, network_of, parse_address
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.transport import FoundPeer
from sapo_protocol.eip712 import Domain
from sapo_protocol.identifiers import Account, NodeId, SwarmId
from sapo_protocol.islands.address_record import MAX_RECORDS, AddressRecord, open_record, parse_record

MOST_OF_ACCOUNT: Final = 4  # as many nodes as count for an account
MOST_RECORDS: Final = 1024  # 2 MiB; all that 64 islands may have, and a part of those of more

CHECKS_OF_SOURCE: Final = Rate(per_second=1.0, burst=64)
"""Records of one network whose signatures are checked: about half a millisecond each."""

PLACED_SECONDS: Final = 30.0
"""Between two computations of all islands and of who is vouched for: any peer may ask."""

RECALLED_SECONDS: Final = 7 * 24 * 3600
"""How old a record of before the last start may be: a server's address lasts for months, others change."""

_MOST_SOURCES: Final = 256

IslandsOf = Callable[[NodeId, Account, float], frozenset[int]]
"""The islands that a node of an account carries at a time, as far as they are known."""

Vouches = Callable[[Account], bool]
"""Whether an account is vouched for: keeping many such accounts has a price."""


@dataclass(frozen=True, slots=True)
class Teller:
    """A peer that sends a record: the IP address from which it is connected, whether this node chose it."""

    peer_id: str
    host: str
    chosen: bool = False


@dataclass(slots=True)
class _Kept:
    """A record, and to whom it is ascribed: to one who is chosen, to its own node, or to its first teller."""

    record: AddressRecord
    addresses: tuple[PeerAddress, ...]
    host: str
    ascribed: Teller
    islands: frozenset[int]
    vouched: bool


class RecordDirectory:
    """Records of other nodes.

    Args:
        own: the own node key, whose records are not kept.
        islands_of: says on which islands a node is; nothing that a record says counts for that.
        vouches: says which accounts are vouched for; nobody's unless given.
        carried: the islands that this node carries: their records go last.
        most_records: of all islands together.
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
        most_records: int = MOST_RECORDS,
    ) -> None:
        self._swarm_id = swarm_id
        self._domain = domain
        self._own = own
        self._islands_of = islands_of
        self._rng = rng
        self._vouches = vouches
        self._carried = carried
        self._most_records = most_records
        self._places = RecordPlaces(rng.randbytes(32))
        self._kept: dict[NodeId, _Kept] = {}
        self._checks = KeyedBuckets(CHECKS_OF_SOURCE, _MOST_SOURCES)
        self._placed_seconds = 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def pairs(self) -> tuple[tuple[NodeId, Account], ...]:
        """Return every node of which a record is kept with its account."""
        return tuple((node, kept.record.certificate.account) for node, kept in self._kept.items())

    def take(self, message: bytes, teller: Teller, now_seconds: float) -> bool:
        """Keep a record if it is valid, newer than what is known of its node, and there is room for it.

        It is ascribed to its first teller, until the node tells it itself or a peer does that this node
        chose: else whoever is quick to pass records on would decide with whose they count. A record that is
        known already is looked at for that alone.

        Returns:
            Whether it is kept.
        """
        unchecked = parse_record(message, self._swarm_id)
        if unchecked is None or unchecked.node == self._own:
            return False
        known = self._kept.get(unchecked.node)
        if known is not None and unchecked.made_seconds <= known.record.made_seconds:
            if known.record.message == message:
                known.ascribed = _ascribed(known, teller, unchecked.node)
            return False
        addresses = _usable(unchecked.addresses, unchecked.node, teller.host)
        if not addresses or not self._checks.take(network_of(teller.host), now_seconds):
            return False
        record = open_record(unchecked, self._swarm_id, self._domain)
        if record is None or not record.counts_at(now_seconds):
            return False
        return self._keep(record, addresses, teller, now_seconds)

    def recall(self, message: bytes, teller: Teller, now_seconds: float) -> FoundPeer | None:
        """Take a record of before the last start, checked like any other.

        One that does not count any more is not kept, and so not passed on; its addresses are worth a try.

        Args:
            teller: to whom it was ascribed.

        Returns:
            The node to dial, unless the record is kept, or wrong, or too old, or its islands are unknown.
        """
        unchecked = parse_record(message, self._swarm_id)
        if unchecked is None or unchecked.node == self._own or unchecked.node in self._kept:
            return None
        addresses = _usable(unchecked.addresses, unchecked.node, teller.host)
        record = open_record(unchecked, self._swarm_id, self._domain) if addresses else None
        if record is None or not record.certificate.covers(now_seconds):
            return None
        if record.counts_at(now_seconds):
            self._keep(record, addresses, teller, now_seconds)
            return None
        if not 0 <= now_seconds - record.made_seconds < RECALLED_SECONDS:
            return None
        islands = self._islands_of(unchecked.node, record.certificate.account, now_seconds)
        return FoundPeer(
            peer_id=peer_id_from_key(unchecked.node),
            addresses=tuple(map(str, addresses)),
            teller=teller.host,
            islands=islands,
            source=network_group_of(teller.host),
        )

    def saved(self, islands: Iterable[int], now_seconds: float) -> tuple[tuple[bytes, Teller], ...]:
        """Return the records of nodes on the islands for the next start, and to whom each is ascribed."""
        return tuple(
            (kept.record.message, kept.ascribed) for _, kept in self._on(frozenset(islands), now_seconds)
        )

    def _keep(
        self, record: AddressRecord, addresses: tuple[PeerAddress, ...], teller: Teller, now_seconds: float
    ) -> bool:
        """Keep a record that was checked if there is room for it; whether it is kept."""
        certificate = record.certificate
        islands = self._islands_of(certificate.node, certificate.account, now_seconds)
        if not islands:
            return False
        known = self._kept.pop(certificate.node, None)
        ascribed, vouched = _ascribed(known, teller, certificate.node), self._vouches(certificate.account)
        kept = _Kept(record, addresses, teller.host, ascribed, islands, vouched)
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
                kept.host,
                kept.islands & wanted,
                network_group_of(kept.ascribed.host),
            )
            for node, kept in self._on(wanted, now_seconds)
        )

    def answer(self, islands: Iterable[int], asker: str, now_seconds: float) -> tuple[bytes, ...]:
        """Return records of nodes on the islands, for a peer at an IP address to which they mean the same.

        Where there are too many each island has as many as another.
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
        """Return what is kept of nodes on the islands now; what does not count any more is forgotten.

        A node of which no island is known any more, since a beacon is missing, is kept: it is on none.
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
        """Forget records where the newest one makes too many of them."""
        account = newest.record.certificate.account
        own = [node for node, kept in self._kept.items() if kept.record.certificate.account == account]
        for node in own[:-MOST_OF_ACCOUNT]:
            del self._kept[node]
        for island in sorted(newest.islands):
            there = self._there(island)
            if len(there) > MOST_ON_ISLAND:
                self._forget_one_of(there)
        if len(self._kept) > self._most_records:
            self._forget_one_of(self._of_the_fullest())

    def _there(self, island: int) -> list[NodeId]:
        return [node for node, kept in self._kept.items() if island in kept.islands]

    def _of_the_fullest(self) -> list[NodeId]:
        """Return the nodes of the fullest island, one that this node does not carry if there is any."""
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


def _ascribed(known: _Kept | None, teller: Teller, node: NodeId) -> Teller:
    """Return to whom a record is ascribed when a peer tells it, which may be known already."""
    if known is None or (teller.chosen and not known.ascribed.chosen):
        return teller
    first_hand = teller.peer_id == peer_id_from_key(node)
    return teller if first_hand and teller.chosen is known.ascribed.chosen else known.ascribed


def _usable(texts: Iterable[str], node: NodeId, teller: str) -> tuple[PeerAddress, ...]:
    """Return a record's addresses, or none if one cannot be dialled or may mean another host here."""
    peer_id = peer_id_from_key(node)
    parsed = tuple(address for address in map(parse_address, texts) if address is not None)
    for address in parsed:
        if address.unspecified or address.peer_id != peer_id or not address.means_the_same(teller):
            return ()
    return parsed
