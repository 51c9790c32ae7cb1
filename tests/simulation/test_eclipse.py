"""Eclipse attack with twenty attackers per honest node: which honest nodes stay connected.

Twenty honest nodes use real address books and the connection places of a host: half for strangers that
connect, a quarter kept for vouched peers that do, the rest for peers that it dials. Attackers dial every node
at once, never disconnect, accept every connection and give only addresses of attackers: their own, and false
ones under the peer ids of honest nodes.
Honest nodes vouch for each other, as nodes do that have checked each other's rollouts for epochs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import sha256

import pytest

from sapo_client.node.gossip.record_places import MAX_ON_ISLAND
from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits, TransportLimits
from sapo_client.swarm.peer_exchange import MAX_ADDRESSES
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.sought import SoughtFor
from sapo_client.swarm.vouched import VouchedPeers

HONEST, ATTACKERS = 20, 400
LIMITS = TransportLimits()
INBOUND_PLACES = int(LIMITS.max_connections * LIMITS.inbound_share)
STRANGER_PLACES = int(LIMITS.max_connections * LIMITS.stranger_share)
UNTRUSTED_PLACES = int(LIMITS.max_connections * LIMITS.untrusted_share)
TICK_SECONDS = 2.0
TICKS_PER_LOOK = 10
RESTART_EVERY_TICKS = 10
TURN_SECONDS = 60.0
"""A twentieth of the real time, since an attack lasts ten minutes here."""
TEN_MINUTES_TICKS = 300
HOST = "192.0.2.1"


def address(name: str) -> PeerAddress:
    return PeerAddress("ip4", HOST, 4001, peer_id_from_key(sha256(name.encode()).digest()))


CROWD = [address(f"attacker {number}") for number in range(ATTACKERS)]


@dataclass
class Node:
    """An honest node's connections; attackers have no state."""

    name: PeerAddress
    book: AddressBook
    came: set[str] = field(default_factory=set)
    chosen: set[str] = field(default_factory=set)
    vouched: VouchedPeers = field(default_factory=VouchedPeers)

    def is_full_for(self, peer_id: str) -> bool:
        """Whether no place is left for a peer that connects."""
        untrusted = len(self.came) - self.vouched.earned_among(self.came)
        strangers = untrusted - self.vouched.bonded_among(self.came)
        if peer_id not in self.vouched and strangers >= STRANGER_PLACES:
            return True
        if not self.vouched.has_earned(peer_id) and untrusted >= UNTRUSTED_PLACES:
            return True
        return len(self.came) >= INBOUND_PLACES

    @property
    def connected(self) -> set[str]:
        return self.came | self.chosen


class EclipseSimulation:
    """One swarm under attack, after two minutes without."""

    def __init__(
        self,
        seed: int,
        *,
        vouching: bool = True,
        trusted_attackers: int = 0,
        sought_attackers: int = 0,
        gate: bool = False,
        bonded_attackers: int = 0,
        sought_honest: int = 0,
        turns: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        names = [address(f"honest {number}") for number in range(HONEST)]
        self.trusted = [name.peer_id for name in (*names, *CROWD[:trusted_attackers])] if vouching else []
        bonded = (*(names if gate else ()), *CROWD[:bonded_attackers])
        self.bonded = [name.peer_id for name in bonded]
        members = (*names[:sought_honest], *CROWD[:sought_attackers])
        self.sought = {each.peer_id: SoughtFor(frozenset({0}), "192.0.0.0/16") for each in members}
        self.own = frozenset({0} if turns else ())
        self.nodes = {name.peer_id: self._node(name) for name in names}
        self.now = 0.0
        self.alone = self.looks = 0
        for node in self.nodes.values():
            node.book.learn(names, HOST)
        self.run(60, attacked=False, restarts=False)
        self.alone = self.looks = 0

    def _node(self, name: PeerAddress) -> Node:
        vouched = VouchedPeers()
        vouched.replace(self.trusted, self.bonded)
        book = AddressBook(name.peer_id, DialLimits(turn_seconds=TURN_SECONDS), self.rng, vouched)
        book.learn([each for each in CROWD if each.peer_id in self.sought], HOST)
        book.seek(self.sought, own=self.own)
        return Node(name, book, vouched=vouched)

    def run(self, ticks: int, *, attacked: bool, restarts: bool) -> None:
        for tick in range(ticks):
            self.now += TICK_SECONDS
            if restarts and tick % RESTART_EVERY_TICKS == 0:
                self._restart(self.rng.choice(list(self.nodes.values())))
            for each in self.nodes.values():
                self._end_a_turn(each)
            dialled: list[tuple[Node | None, PeerAddress]] = [
                (node, to) for node in self.nodes.values() for to in self._due(node)
            ]
            if attacked:
                dialled += [
                    (None, node.name) for node in self.nodes.values() for _ in range(ATTACKERS // HONEST)
                ]
            self.rng.shuffle(dialled)
            for node, to in dialled:
                self._dial(node, to)
            self._exchange()
            if tick % TICKS_PER_LOOK == 0:
                self._look()

    def _end_a_turn(self, node: Node) -> None:
        """Let a node replace a member of its island, as it does on one that it publishes on."""
        leaving = node.book.giving_way(node.connected, node.chosen, self.now)
        if leaving is not None:
            node.chosen.discard(leaving)
            node.book.lost(leaving, self.now)
            if leaving in self.nodes:
                self.nodes[leaving].came.discard(node.name.peer_id)

    def _due(self, node: Node) -> tuple[PeerAddress, ...]:
        return node.book.due(node.connected, node.chosen, self.now)

    def _dial(self, node: Node | None, to: PeerAddress) -> None:
        """Connect if the other side has a free place; attackers always have one."""
        other = self.nodes.get(to.peer_id)
        if node is None:
            attacker = self.rng.choice(CROWD).peer_id
            if other is not None and attacker not in other.connected and not other.is_full_for(attacker):
                other.came.add(attacker)
            return
        if (other is not None and other.is_full_for(node.name.peer_id)) or (
            other is not None and to != other.name
        ):
            node.book.failed(to.peer_id, self.now)
        elif to.peer_id not in node.connected:
            node.chosen.add(to.peer_id)
            node.book.reached(to.peer_id, self.now)
            node.book.chose(to, self.now)
            node.book.learn_first_hand([to])
            if other is not None:
                other.came.add(node.name.peer_id)

    def _exchange(self) -> None:
        """Let every node ask one of its peers for addresses."""
        for node in self.nodes.values():
            if not node.connected:
                continue
            asked = self.nodes.get(self.rng.choice(sorted(node.connected)))
            if asked is None:
                node.book.learn(self.rng.sample(CROWD, MAX_ADDRESSES // 2), HOST)
                node.book.learn(self._false_addresses(MAX_ADDRESSES // 2), HOST)
                continue
            node.book.learn_first_hand([asked.name])
            given = [known for peer in sorted(asked.connected) for known in asked.book.addresses_of(peer)[:1]]
            node.book.learn(given[:MAX_ADDRESSES], HOST)
            asked.book.learn_first_hand([node.name])

    def _false_addresses(self, number: int) -> list[PeerAddress]:
        """Return addresses at which nobody answers, under the ids of honest nodes."""
        peer_ids = self.rng.choices(list(self.nodes), k=number)
        return [PeerAddress("ip4", "198.51.100.1", self.rng.randrange(1, 65536), each) for each in peer_ids]

    def _restart(self, node: Node) -> None:
        """Restart a node: it loses its connections and keeps its cache of addresses."""
        for peer_id in node.connected & set(self.nodes):
            other = self.nodes[peer_id]
            other.came.discard(node.name.peer_id)
            other.chosen.discard(node.name.peer_id)
            other.book.lost(node.name.peer_id, self.now)
        known = node.book.addresses()
        self.nodes[node.name.peer_id] = self._node(node.name)
        self.nodes[node.name.peer_id].book.learn_first_hand(known)

    def _look(self) -> None:
        """Count the nodes that have no honest peer."""
        self.looks += len(self.nodes)
        self.alone += sum(not node.connected & set(self.nodes) for node in self.nodes.values())

    @property
    def alone_share(self) -> float:
        """Share of all observations in which a node had no honest peer."""
        return self.alone / self.looks

    def largest_group(self) -> int:
        """Return the size of the largest connected component of honest nodes."""
        unseen, largest = set(self.nodes), 0
        while unseen:
            group, edge = set(), {unseen.pop()}
            while edge:
                group |= edge
                edge = {peer for one in edge for peer in self.nodes[one].connected & set(self.nodes)} - group
            unseen -= group
            largest = max(largest, len(group))
        return largest


def test_a_swarm_connected_before_an_attack_stays_connected() -> None:
    """An existing connection is not displaced by later ones."""
    simulation = EclipseSimulation(seed=0)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=False)
    assert (simulation.alone_share, simulation.largest_group()) == (0.0, HONEST)


def test_a_node_that_restarts_under_attack_finds_vouched_peers() -> None:
    """Places kept for vouched peers are not taken by keys that are free."""
    simulation = EclipseSimulation(seed=0)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=True)
    assert simulation.alone_share < 0.05
    assert simulation.largest_group() >= HONEST - 1


@pytest.mark.long
def test_attackers_with_all_address_records_of_an_island_take_no_other_places() -> None:
    """Every record that nodes have names an attacker: they are dialled beyond the usual number."""
    simulation = EclipseSimulation(seed=0, sought_attackers=MAX_ON_ISLAND)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=True)
    assert simulation.alone_share < 0.05
    assert simulation.largest_group() >= HONEST - 1


@pytest.mark.parametrize(
    ("attackers", "most"), [(HONEST // 2, 0.05), pytest.param(HONEST, 0.4, marks=pytest.mark.long)]
)
def test_trusted_attackers_take_a_part_of_the_reserved_places(attackers: int, most: float) -> None:
    """Ten trusted attackers beside twenty honest accounts have little effect; twenty weaken the defence."""
    simulation = EclipseSimulation(seed=0, trusted_attackers=attackers)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=True)
    assert simulation.alone_share < most


def test_without_vouching_restarts_under_attack_isolate_nodes() -> None:
    """Where nobody is vouched for, the attackers take the places that a restart frees.

    A node is alone for 7.5 % of the time here, 13 and 5.5 % with seeds 1 and 2. It was 27, 12 and 15 % with
    64 connections, and above 30 % before others remembered the peers that they chose and lost.
    """
    simulation = EclipseSimulation(seed=0, vouching=False)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=True)
    assert simulation.alone_share > 0.05


@pytest.mark.parametrize(
    ("attackers", "most"), [(0, 0.05), pytest.param(HONEST, 0.4, marks=pytest.mark.long)]
)
def test_bonds_find_honest_neighbours_for_nodes_without_trusted_peers(attackers: int, most: float) -> None:
    """A gate vouches for accounts before they earned a weight, also for those that attackers bought."""
    simulation = EclipseSimulation(seed=0, vouching=False, gate=True, bonded_attackers=attackers)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=True)
    assert simulation.alone_share < most


def test_bonds_of_attackers_take_no_places_of_trusted_peers() -> None:
    simulation = EclipseSimulation(seed=0, gate=True, bonded_attackers=ATTACKERS)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=True)
    assert simulation.alone_share < 0.05


def test_restarts_without_an_attack_separate_no_nodes() -> None:
    simulation = EclipseSimulation(seed=0)
    simulation.run(TEN_MINUTES_TICKS, attacked=False, restarts=True)
    assert simulation.alone_share < 0.02
    assert simulation.largest_group() >= HONEST - 1


@pytest.mark.long
@pytest.mark.parametrize("vouching", [True, False])
def test_a_place_that_is_taken_in_turns_isolates_no_node(vouching: bool) -> None:
    """Half of the records are attackers'. Nobody restarts, so only turns free places, and attackers dial at
    once for each: nodes keep the honest neighbours that they had."""
    simulation = EclipseSimulation(seed=0, vouching=vouching, sought_honest=8, sought_attackers=8, turns=True)
    simulation.run(TEN_MINUTES_TICKS, attacked=True, restarts=False)
    assert (simulation.alone_share, simulation.largest_group()) == (0.0, HONEST)
