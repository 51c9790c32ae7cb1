"""Attackers who publish own address records: whether an island's nodes still find each other by record.

Honest nodes and the relays that they ask use real directories and address books, and every record is signed.
Of the peers that a node chose, one in four is honest. Attackers hold keys and accounts without number, answer
every question with as many fresh records of the island as fit, connect to everybody from all their networks,
and say to each one a record of theirs. Nodes restart, and keep nothing.

The figures of the decision on address records are those of ``RecordAttack(0, ...).run(48)``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from support.swarm import Identity, make_manifest, moment

from sapo_client.node.gossip.record_directory import RecordDirectory, RecordSource
from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import parse_address
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.sought import SoughtFor
from sapo_client.swarm.vouched import VouchedPeers
from sapo_protocol.islands.address_record import MAX_RECORDS, issue_record

MANIFEST = make_manifest()
NOW = int(moment(MANIFEST))
ISLAND = frozenset({1})
HONEST, RELAYS, ATTACKER_RECORDS = 12, 4, 300
CHOSEN, CHOSEN_HONEST, CAME = 8, 2, 32
TICK_SECONDS = 5.0
RESTART_EVERY_TICKS = 2
BY_RECORD = DialLimits(target_peers=0, vouched_peers=0)
"""Nobody is dialled but for a record."""


def record(who: Identity, host: str) -> bytes:
    address = f"/ip4/{host}/tcp/4001/p2p/{peer_id_from_key(who.node)}"
    return issue_record(who.seed, who.certificate(MANIFEST).to_bytes(), MANIFEST.swarm_id, NOW, [address])


@dataclass
class Node:
    """An honest node: a member of the island, or a relay that lives on another one."""

    who: Identity
    host: str
    directory: RecordDirectory
    book: AddressBook
    chosen: set[str] = field(default_factory=set)
    asked: int = 0
    first: int = 0

    @property
    def peer_id(self) -> str:
        return peer_id_from_key(self.who.node)


class RecordAttack:
    """One island under attack from some networks.

    Args:
        networks: from how many networks the attackers connect.
        gate: whether all members have bonds.
        bonds: how many of the attackers' accounts have.
    """

    def __init__(self, seed: int, *, networks: int, bonds: int = 0, gate: bool = False) -> None:
        self.rng = random.Random(seed)
        people = [Identity(1000 + n) for n in range(ATTACKER_RECORDS)]
        bonded = [*people[:bonds], *(Identity(1 + n) for n in range(HONEST if gate else 0))]
        self.bonded = {who.account for who in bonded}
        self.bonded_ids = {peer_id_from_key(who.node) for who in bonded}
        self.members = [self._node(Identity(1 + n), f"20.{n}.0.1") for n in range(HONEST)]
        self.relays = [self._node(Identity(100 + n), f"40.{n}.0.1") for n in range(RELAYS)]
        self.records = {node.peer_id: record(node.who, node.host) for node in self.members}
        self.networks = [f"{130 + n // 250}.{n % 250}.7.7" for n in range(networks)]
        hosts = [self.networks[n % networks] for n in range(ATTACKER_RECORDS)]
        self.attacks = [record(who, host) for who, host in zip(people, hosts, strict=True)]
        self.ids = [peer_id_from_key(who.node) for who in people]
        self.now = float(NOW)
        self.alone = self.looks = 0

    def _node(self, who: Identity, host: str) -> Node:
        directory = RecordDirectory(
            MANIFEST.swarm_id,
            MANIFEST.binding_domain,
            who.node,
            lambda *_: ISLAND,
            self.rng,
            vouches=self.bonded.__contains__,
        )
        vouched = VouchedPeers()
        book = AddressBook(peer_id_from_key(who.node), BY_RECORD, self.rng, vouched)
        vouched.replace(self.bonded_ids)
        return Node(who, host, directory, book)

    def run(self, ticks: int) -> None:
        for tick in range(ticks):
            self.now += TICK_SECONDS
            if tick % RESTART_EVERY_TICKS == 0:
                self._restart(self.rng.randrange(HONEST))
            for node in (*self.members, *self.relays):
                self._push(node)
            for node in self.rng.sample(self.members, HONEST):
                for _ in range(1 if node.asked else CHOSEN):  # one after the other, half a second apart
                    self._ask(node)
                    self._dial(node)
            for relay in self.relays:
                self._ask(relay)
            if tick >= ticks // 4:
                self.looks += HONEST
                self.alone += sum(not node.chosen & self.records.keys() for node in self.members)

    def _push(self, node: Node) -> None:
        """Let attackers connect from some of their networks and send one record each."""
        for _ in range(CAME // 4):
            place = self.rng.randrange(ATTACKER_RECORDS)
            host = self.rng.choice(self.networks)
            node.directory.take(self.attacks[place], RecordSource(self.ids[place], host), self.now)

    def _ask(self, node: Node) -> None:
        """Ask the next one of the chosen peers."""
        node.asked += 1
        others = [relay for relay in self.relays if relay is not node]
        if (node.first + node.asked) % CHOSEN < CHOSEN_HONEST:
            relay = others[node.asked // CHOSEN % len(others)]
            if node.peer_id in self.records:
                relay.directory.take(
                    self.records[node.peer_id], RecordSource(node.peer_id, node.host), self.now
                )
            source = RecordSource(relay.peer_id, relay.host, chosen=True)
            told = relay.directory.answer(ISLAND, node.host, self.now)
        else:
            host = self.networks[node.asked % CHOSEN % len(self.networks)]
            source = RecordSource(self.ids[0], host, chosen=True)
            told = tuple(self.rng.sample(self.attacks, MAX_RECORDS))
        for message in told:
            node.directory.take(message, source, self.now)

    def _dial(self, node: Node) -> None:
        """Dial the members that the directory names; attackers and honest nodes accept."""
        found = node.directory.members(ISLAND, self.now)
        for peer in found:
            node.book.learn(filter(None, map(parse_address, peer.addresses)), peer.source)
        node.book.seek({peer.peer_id: SoughtFor(peer.islands, peer.source) for peer in found})
        for address in node.book.due(node.chosen, node.chosen, self.now):
            node.chosen.add(address.peer_id)

    def _restart(self, place: int) -> None:
        node = self._node(self.members[place].who, self.members[place].host)
        node.first = self.rng.randrange(CHOSEN)
        self.members[place] = node
        for other in self.members:
            other.chosen.discard(node.peer_id)

    @property
    def alone_share(self) -> float:
        """Share of all observations in which a member had chosen no honest member of its island."""
        return self.alone / self.looks

    def honest_share(self) -> float:
        """Return the share of honest nodes among the records of the relays."""
        kept = [peer.peer_id for relay in self.relays for peer in relay.directory.members(ISLAND, self.now)]
        return sum(peer_id in self.records for peer_id in kept) / len(kept)


@pytest.mark.parametrize(
    ("bonds", "most"), [pytest.param(0, 0.05, marks=pytest.mark.long), (HONEST // 2, 0.3)]
)
def test_members_with_bonds_find_each_other_under_a_flood_of_records(bonds: int, most: float) -> None:
    """From 250 networks, with three in four of the peers that a node chose; half as many bonds as members."""
    attack = RecordAttack(0, networks=250, gate=True, bonds=bonds)
    attack.run(24)
    assert attack.alone_share < most
    assert attack.honest_share() > 0.25


def test_without_a_gate_attackers_hold_most_records_of_an_island() -> None:
    """As in the threat model: where accounts are free their records cannot be distinguished from others."""
    attack = RecordAttack(0, networks=250)
    attack.run(24)
    assert attack.alone_share > 0.3
