"""Recent messages are announced to a new connection, and sent only to peers that lack them."""

from __future__ import annotations

from typing import Any

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue

from sapo_client.swarm.intake import message_id
from sapo_client.swarm.p2p.message_cache import ContentCache
from sapo_client.swarm.peer_id import peer_id_from_key

ATTACKER = ID.from_base58(peer_id_from_key(bytes([99]) * 32))
SIZE_BYTES = 4096
MESSAGES = 40


def remember_for_long(member: Any) -> None:
    """Let a node keep its messages for as long as a slow machine may take."""
    member.transport._gossip.router.mcache = ContentCache(3, 3600)


def count_forwarded(member: Any) -> list[int]:
    """Note to how many peers a node forwards each message of others."""
    mesh, found = member.transport._mesh, list[int]()
    forward = mesh.forward

    def count(message: Any, came_from: Any) -> int:
        found.append(forward(message, came_from))
        return found[-1]

    mesh.forward = count
    return found


async def test_a_late_peer_gets_each_recent_message_from_one_peer(swarm: Any, tools: Any) -> None:
    first = await swarm.start(1)
    second = await swarm.start(2, bootstrap=first.transport.addresses)
    await swarm.wait_until_connected([first, second])
    for member in (first, second):
        remember_for_long(member)
    for number in range(MESSAGES):
        await first.publish(b"%d " % number + bytes(SIZE_BYTES))
    await tools.eventually(lambda: len(second.accepted) == MESSAGES)
    known = (*first.transport.addresses, *second.transport.addresses)
    late = await swarm.start(3, bootstrap=known)
    forwarded = count_forwarded(late)
    await tools.eventually(lambda: len(late.accepted) == MESSAGES)
    await swarm.wait_until_connected([first, second, late])
    assert set(late.accepted) == set(second.accepted)
    assert late.transport.counters()["duplicates"] <= MESSAGES / 8
    assert first.transport.counters()["duplicates"] == 0
    assert sum(forwarded) <= MESSAGES / 2, "what came before the second peer had announced it, not all"


def connect_again(gossip: Any, topic: str) -> RpcQueue:
    """Let the attacker's connection end and come back."""
    gossip.router.remove_peer(ATTACKER)
    queue = gossip.peer_queues[ATTACKER] = RpcQueue(10_000)
    gossip.peers[ATTACKER] = object()
    gossip.peer_topics.setdefault(topic, set()).add(ATTACKER)
    gossip.router.add_peer(ATTACKER, TProtocol("/meshsub/1.2.0"))
    return queue


def sent_bytes(queue: RpcQueue) -> int:
    """Return the size of what waits for the attacker."""
    total = 0
    while (rpc := queue._queue.pop()) is not None:
        total += rpc.ByteSize()
    return total


async def uploaded_bytes(gossip: Any, topic: str, *, connections: int, asks: bool) -> int:
    """Return what a node sends to a peer that connects again and again."""
    gossip.router.mesh[topic] = set()
    identities = []
    for number in range(MESSAGES):
        data = b"%d " % number + bytes(SIZE_BYTES)
        gossip.router.forward(rpc_pb2.Message(data=data, topicIDs=[topic]), came_from=None)
        identities.append(message_id(topic, data))
    total = 0
    for _ in range(connections):
        queue = connect_again(gossip, topic)
        await gossip.router.send_recent_messages(ATTACKER, topic)
        for _ in range(3 if asks else 0):
            await gossip.router.handle_iwant(rpc_pb2.ControlIWant(messageIDs=identities), ATTACKER)
        total += sent_bytes(queue)
        await trio.lowlevel.checkpoint()
    return total


async def test_a_peer_that_requests_nothing_gets_only_announcements(make_transport: Any, tools: Any) -> None:
    gossip = make_transport()._gossip
    sent = await uploaded_bytes(gossip, tools.TOPIC, connections=1, asks=False)
    assert 0 < sent < MESSAGES * SIZE_BYTES / 50


async def test_a_peer_that_reconnects_repeatedly_gets_each_message_at_most_three_times(
    make_transport: Any, tools: Any
) -> None:
    gossip = make_transport()._gossip
    sent = await uploaded_bytes(gossip, tools.TOPIC, connections=500, asks=True)
    messages = 3 * MESSAGES * (SIZE_BYTES + 100)
    announcements = 70 * (MESSAGES * 34 + 100)  # a burst of 64, and one a second
    assert MESSAGES * SIZE_BYTES < sent < messages + announcements
