"""Among neighbours that forward nothing a node grafts one that does; all peers get announcements."""

from __future__ import annotations

import random
from itertools import pairwise

from sapo_client.swarm.simulated.copies import SentCopy, Way
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.mesh import MeshNetwork, MeshNode
from sapo_client.swarm.supply import MIN_ANNOUNCED, Supply
from sapo_protocol.errors import Verdict

TOPIC = "rollouts"


def raise_bug(error: Exception) -> None:
    """Let a bug in a callback end the test."""
    raise error


class Sea:
    """A mesh of some nodes that may forward nothing, and the copies sent in it."""

    def __init__(self, *, loss_share: float = 0.0) -> None:
        self.queue = EventQueue()
        self.copies: list[SentCopy] = []
        conditions = LinkConditions(0.02, 0.15, loss_share=loss_share)
        self.network = MeshNetwork(self.queue, random.Random(0), conditions, on_copy=self.copies.append)

    def node(self, name: str, *, relays: bool = True) -> MeshNode:
        """Return a running node that has joined the topic."""
        node = MeshNode(self.network, name, on_bug=raise_bug, relays=relays)
        node.start()
        node.subscribe(TOPIC, lambda message, forwarder: Verdict.ACCEPT)
        return node

    def publish(self, author: MeshNode, seconds: float) -> None:
        """Let a node publish four messages a second."""
        for number in range(int(4 * seconds)):
            author.publish(TOPIC, b"%s %d" % (author.peer_id.encode(), number) + bytes(1000))
            self.queue.run_until(self.queue.now_seconds + 0.25)


def test_a_mesh_full_of_silent_neighbours_grafts_the_one_that_forwards() -> None:
    sea = Sea()
    leaf, author, relay = (sea.node(name) for name in ("leaf", "author", "relay"))
    for number in range(9):
        silent = sea.node(f"silent-{number}", relays=False)
        assert leaf.connect(silent.peer_id)
        assert silent.connect(author.peer_id)
    sea.queue.run_until(3.0)
    assert len(leaf.mesh_of(TOPIC)) >= 6
    assert leaf.connect(relay.peer_id)
    assert relay.connect(author.peer_id)
    sea.publish(author, 30)
    assert relay.peer_id in leaf.mesh_of(TOPIC)
    sea.queue.run_until(sea.queue.now_seconds + 3)
    assert leaf.counters.accepted == 120
    late = [one.way for one in sea.copies[-300:] if one.receiver == leaf.peer_id]
    assert set(late) == {Way.FORWARDED}


def test_every_peer_of_a_large_node_gets_what_only_that_node_has() -> None:
    sea = Sea()
    hub, author = sea.node("hub"), sea.node("author")
    assert hub.connect(author.peer_id)
    leaves = [sea.node(f"leaf-{number}", relays=False) for number in range(40)]
    for leaf in leaves:
        assert leaf.connect(hub.peer_id)
    sea.queue.run_until(3.0)
    sea.publish(author, 5)
    sea.queue.run_until(sea.queue.now_seconds + 5)
    assert {leaf.counters.accepted for leaf in leaves} == {20}


def test_messages_sent_before_a_stop_arrive_and_queued_ones_do_not() -> None:
    sea = Sea()
    author, peer = sea.node("author"), sea.node("peer")
    assert author.connect(peer.peer_id)
    author.publish(TOPIC, bytes(1000))
    sea.queue.run_until(0.01)
    author.publish(TOPIC, bytes(60_000))
    author.publish(TOPIC, bytes(1001))
    sea.queue.run_until(0.015)
    author.stop()
    sea.queue.run_until(5.0)
    assert peer.counters.accepted == 1


def test_lost_packets_arrive_later_and_delay_those_sent_after_them() -> None:
    sea = Sea(loss_share=0.2)
    author, peer = sea.node("author"), sea.node("peer")
    assert author.connect(peer.peer_id)
    sea.publish(author, 100)
    sea.queue.run_until(sea.queue.now_seconds + 60)
    assert peer.counters.accepted == 400
    copies = [one for one in sea.copies if one.way is Way.OWN]
    due = [one.due_seconds for one in copies]
    assert due == sorted(due)
    repeats = sum(one.repeats for one in copies)
    assert 70 < repeats < 130  # a quarter of 400 packets is sent again, once or more often
    latency = sea.network.latency_seconds(author.peer_id, peer.peer_id)
    late = [after - before for before, after in pairwise(due)]
    assert max(late) > 0.2 + 2 * latency
    assert author.traffic.sent_bytes > 1000 * len(copies) + 1400 * repeats


def test_a_node_over_budget_with_the_fewest_neighbours_announces_to_few_peers_at_a_time() -> None:
    supply: Supply[str] = Supply(random.Random(0))
    others = [f"peer-{number}" for number in range(60)]
    assert len(supply.to_tell(TOPIC, others)) == 20
    supply.shift()
    told = supply.to_tell(TOPIC, others, sparingly=True)
    assert len(told) == MIN_ANNOUNCED


def test_a_node_that_sends_too_much_keeps_fewer_neighbours_and_loses_nothing() -> None:
    sea = Sea()
    authors = [sea.node(f"author-{number}") for number in range(20)]
    hub = sea.node("hub")
    for number, author in enumerate(authors):
        assert author.connect(hub.peer_id)
        for step in (1, 2, 3):
            assert author.connect(authors[(number + step) % len(authors)].peer_id)
    sea.queue.run_until(3.0)
    for number in range(500):
        if number == 260:
            before = hub.traffic.sent_bytes
        authors[number % len(authors)].publish(TOPIC, b"%d" % number + bytes(4000))
        sea.queue.run_until(sea.queue.now_seconds + 0.05)
    assert 8 * (hub.traffic.sent_bytes - before) / 12 < 3.5e6
    sea.queue.run_until(sea.queue.now_seconds + 5)
    assert {one.counters.accepted for one in authors} == {475}
    assert hub.counters.accepted == 500
