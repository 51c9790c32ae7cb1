"""A young swarm whose only bootstrap node dies during a long partition: whether its halves reconnect.

Real address books and a clock that is passed in. Nobody has earned trust yet, and nobody is found in a local
network. Each half is large enough that its nodes have as many peers as they want.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pytest

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_exchange import MAX_ADDRESSES
from sapo_client.swarm.peer_id import peer_id_from_key

TICK_SECONDS = 5.0
MINUTE = int(60 / TICK_SECONDS)
NODES = 24


@dataclass
class Newcomer:
    """A node with its book, and the peers that it chose or that came."""

    name: PeerAddress
    book: AddressBook
    side: int
    chosen: set[str] = field(default_factory=set)
    came: set[str] = field(default_factory=set)

    @property
    def connected(self) -> set[str]:
        return self.chosen | self.came


class DividedSwarm:
    """Nodes that meet through a bootstrap node; `cut` parts even from odd ones.

    Args:
        networks: in which the nodes are, by turns.
    """

    def __init__(self, seed: int, networks: int, limits: DialLimits | None = None) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.is_cut = False
        names = [self._name(number, networks) for number in range(NODES + 1)]
        self.boot = names[NODES].peer_id
        self.nodes = {
            name.peer_id: Newcomer(
                name, AddressBook(name.peer_id, limits or DialLimits(), self.rng), number % 2
            )
            for number, name in enumerate(names)
        }
        for node in self.nodes.values():
            node.book.add_bootstrap(names[NODES])

    def _name(self, number: int, networks: int) -> PeerAddress:
        host = f"198.{number % networks}.0.{number}"
        return PeerAddress("ip4", host, 4001, peer_id_from_key(sha256(b"%d" % number).digest()))

    def kill_boot(self) -> None:
        boot = self.nodes.pop(self.boot)
        for node in self.nodes.values():
            self._part(node, boot)

    def cut(self) -> None:
        self.is_cut = True
        for node in self.nodes.values():
            for peer_id in sorted(node.connected):
                if self.nodes[peer_id].side != node.side:
                    self._part(node, self.nodes[peer_id])

    def _part(self, *ends: Newcomer) -> None:
        for node, other in (ends, ends[::-1]):
            if other.name.peer_id in node.connected:
                node.chosen.discard(other.name.peer_id)
                node.came.discard(other.name.peer_id)
                node.book.lost(other.name.peer_id, self.now)

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.now += TICK_SECONDS
            for node in self.nodes.values():
                for to in node.book.due(node.connected, node.chosen, self.now):
                    node.book.dialling(to.peer_id, self.now)
                    self._dial(node, to)
            for node in self.nodes.values():
                self._exchange(node)

    def _dial(self, node: Newcomer, to: PeerAddress) -> None:
        other = self.nodes.get(to.peer_id)
        if other is None or to != other.name or (self.is_cut and other.side != node.side):
            node.book.failed(to.peer_id, self.now)
            return
        if to.peer_id in node.connected:
            return
        node.chosen.add(to.peer_id)
        other.came.add(node.name.peer_id)
        for end, peer in ((node, other), (other, node)):
            end.book.reached(peer.name.peer_id, self.now)
        node.book.chose(to, self.now)
        node.book.learn_first_hand([to])

    def _exchange(self, node: Newcomer) -> None:
        """Ask one peer for the addresses of those with whom it is connected."""
        if not node.connected:
            return
        asked = self.nodes[self.rng.choice(sorted(node.connected))]
        asked.book.learn_first_hand([node.name], node.name.host)
        node.book.learn_first_hand([asked.name], asked.name.host)
        given = [known for peer in sorted(asked.connected) for known in asked.book.addresses_of(peer)[:1]]
        node.book.learn(given[:MAX_ADDRESSES], asked.name.host)

    def groups(self) -> list[int]:
        """Return the sizes of the connected components, the largest first."""
        unseen, sizes = set(self.nodes), []
        while unseen:
            group, edge = set(), {unseen.pop()}
            while edge:
                group |= edge
                edge = {peer for one in edge for peer in self.nodes[one].connected} - group
            unseen -= group
            sizes.append(len(group))
        return sorted(sizes, reverse=True)


def parted(swarm: DividedSwarm) -> list[int]:
    """Partition a swarm of ten minutes for half an hour; return its groups two minutes after the end."""
    swarm.run(10 * MINUTE)
    assert swarm.groups() == [NODES + 1]
    swarm.cut()
    swarm.kill_boot()
    swarm.run(30 * MINUTE)
    assert swarm.groups() == [NODES // 2, NODES // 2]
    swarm.is_cut = False
    swarm.run(2 * MINUTE)
    return swarm.groups()


def test_halves_without_remembered_peers_never_reconnect() -> None:
    limits = replace(DialLimits(), lost_peers=0, max_lost=0)
    assert parted(DividedSwarm(0, networks=NODES, limits=limits)) == [NODES // 2, NODES // 2]


@pytest.mark.parametrize("networks", [1, NODES])
def test_halves_meet_again_without_their_bootstrap_node(networks: int) -> None:
    swarm = DividedSwarm(0, networks)
    assert parted(swarm) == [NODES]
    most = DialLimits().target_peers + DialLimits().lost_peers
    assert max(len(node.chosen) for node in swarm.nodes.values()) <= most + 1
