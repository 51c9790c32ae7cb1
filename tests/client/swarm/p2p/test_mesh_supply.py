"""The real mesh announces messages to all peers, and replaces neighbours that forward nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue

from sapo_client.swarm.intake import message_id
from sapo_client.swarm.p2p.mesh import DEGREE, DEGREE_HIGH, DEGREE_LOW
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.supply import MIN_ANNOUNCED, SETTLED_HEARTBEATS
from sapo_client.swarm.upload_budget import MIN_NEIGHBOURS

PEERS = [ID.from_base58(peer_id_from_key(bytes([number]) * 32)) for number in range(1, 41)]
USEFUL, *SILENT = PEERS


@pytest.fixture
def mesh(make_transport: Any, tools: Any) -> Any:
    """Return a mesh with connected peers of its topic, none of them a neighbour; nobody empties queues."""
    pubsub = make_transport()._gossip
    pubsub.router.mesh[tools.TOPIC] = set()
    for peer in PEERS:
        pubsub.peer_queues[peer] = RpcQueue(1000)
        pubsub.peers[peer] = object()
        pubsub.peer_topics.setdefault(tools.TOPIC, set()).add(peer)
        pubsub.router.peer_protocol[peer] = TProtocol("/meshsub/1.2.0")
    return pubsub.router


def message(tools: Any, number: int) -> Any:
    """Return a message of the topic."""
    return rpc_pb2.Message(data=b"%d" % number, topicIDs=[tools.TOPIC])


def exchange(mesh: Any) -> tuple[dict[ID, list[str]], dict[ID, list[str]]]:
    """Let the part of a heartbeat pass that exchanges neighbours."""
    grafts: defaultdict[ID, list[str]] = defaultdict(list)
    prunes: defaultdict[ID, list[str]] = defaultdict(list)
    mesh._exchange_neighbours(grafts, prunes)
    mesh._supply.shift()
    return dict(grafts), dict(prunes)


async def test_every_peer_gets_the_announcement_of_a_message(mesh: Any, tools: Any) -> None:
    mesh.forward(message(tools, 1), came_from=None)
    identity = message_id(tools.TOPIC, b"1")
    told: Counter[ID] = Counter()
    for _ in range(3):
        announced = mesh.gossip_heartbeat()
        assert all(topics == {tools.TOPIC: [identity]} for topics in announced.values())
        told.update(announced.keys())
        mesh._supply.shift()
        mesh.mcache.shift()
    assert told.keys() == set(PEERS)
    assert max(told.values()) <= 2
    assert mesh.gossip_heartbeat() == {}


async def test_a_pruned_peer_also_gets_announcements(mesh: Any, tools: Any) -> None:
    mesh._add_back_off(USEFUL, tools.TOPIC, False)
    mesh.forward(message(tools, 1), came_from=None)
    told: set[ID] = set()
    for _ in range(3):
        told |= mesh.gossip_heartbeat().keys()
        mesh._supply.shift()
        mesh.mcache.shift()
    assert USEFUL in told


async def test_neighbours_that_forward_nothing_make_room_for_one_that_answers(mesh: Any, tools: Any) -> None:
    mesh.mesh[tools.TOPIC] = set(SILENT[:DEGREE])
    for heartbeat in range(SETTLED_HEARTBEATS + 1):
        for number in range(3 * heartbeat, 3 * heartbeat + 3):
            announced = rpc_pb2.ControlIHave(
                topicID=tools.TOPIC, messageIDs=[message_id(tools.TOPIC, b"%d" % number)]
            )
            await mesh.handle_ihave(announced, USEFUL)
            mesh.forward(message(tools, number), came_from=USEFUL)
        grafts, prunes = exchange(mesh)
    assert grafts == {USEFUL: [tools.TOPIC]}
    (left,) = prunes
    assert left in SILENT[:DEGREE]
    assert mesh.mesh[tools.TOPIC] == {USEFUL, *SILENT[:DEGREE]} - {left}
    assert mesh._check_back_off(left, tools.TOPIC)


async def test_many_silent_newcomers_do_not_displace_neighbours_that_forward(mesh: Any, tools: Any) -> None:
    mesh.mesh[tools.TOPIC] = {USEFUL, *SILENT[:3]}
    for heartbeat in range(SETTLED_HEARTBEATS + 1):
        mesh.forward(message(tools, heartbeat), came_from=USEFUL)
        exchange(mesh)
    mesh.mesh[tools.TOPIC] |= set(SILENT[3:])
    _, prunes = mesh.mesh_heartbeat()
    assert len(mesh.mesh[tools.TOPIC]) == DEGREE
    assert USEFUL in mesh.mesh[tools.TOPIC]
    assert set(SILENT[:3]) <= prunes.keys()


async def test_a_node_that_sends_more_than_its_budget_has_fewer_neighbours(mesh: Any, tools: Any) -> None:
    mesh.mesh[tools.TOPIC] = set(PEERS[:DEGREE_HIGH])
    found = []
    for heartbeat in range(60):
        for number in range(15):
            mesh.forward(
                rpc_pb2.Message(data=b"%d" % (15 * heartbeat + number) + bytes(4000), topicIDs=[tools.TOPIC]),
                came_from=PEERS[20],
            )
        found.append(mesh._budget.beat())
        mesh.mesh[tools.TOPIC] = set(PEERS[: found[-1]])
    assert found[0] == DEGREE_HIGH
    assert set(found[-20:]) == {5}


async def test_a_node_far_over_its_budget_has_the_fewest_neighbours_and_announces_to_few(
    mesh: Any, tools: Any
) -> None:
    mesh.mesh[tools.TOPIC] = set(PEERS[:DEGREE_HIGH])
    for heartbeat in range(40):
        for number in range(200):
            data = b"%d" % (200 * heartbeat + number) + bytes(4000)
            mesh.forward(rpc_pb2.Message(data=data, topicIDs=[tools.TOPIC]), came_from=PEERS[20])
        for peer in PEERS:
            mesh.pubsub.peer_queues[peer] = RpcQueue(1000)
        mesh._follow_budget()
        mesh.mesh_heartbeat()
    assert len(mesh.mesh[tools.TOPIC]) == MIN_NEIGHBOURS
    assert len(mesh.gossip_heartbeat()) == MIN_ANNOUNCED
    for _ in range(60):
        mesh._follow_budget()
        mesh.mesh_heartbeat()
    assert mesh.degree_high == DEGREE_HIGH
    assert DEGREE_LOW <= len(mesh.mesh[tools.TOPIC]) <= DEGREE
    assert len(mesh.gossip_heartbeat()) > MIN_ANNOUNCED
