"""Messages that wait for slow peers are bounded in bytes, and stored once for all peers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.rpc_queue import RpcQueue

from sapo_client.swarm.intake import message_id
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.message_cache import MAX_BYTES
from sapo_client.swarm.p2p.outbound_queue import OutboundQueue
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol.constants import MAX_ENVELOPE_BYTES

LIMITS = TransportLimits()
PEERS = [ID.from_base58(peer_id_from_key(bytes([number]) * 32)) for number in range(1, 41)]
MESSAGES = MAX_BYTES // MAX_ENVELOPE_BYTES
"""As many of full size as the cache holds."""


@pytest.fixture
def mesh(make_transport: Any, tools: Any) -> Any:
    """Return a mesh that holds messages of full size, with peers whose queues nobody empties."""
    pubsub = make_transport()._gossip
    router = pubsub.router
    router.mesh[tools.TOPIC] = set()
    for peer in PEERS:
        queue = pubsub.peer_queues[peer] = RpcQueue()
        OutboundQueue.bound(queue, LIMITS)
        pubsub.peers[peer] = object()
        router.peer_protocol[peer] = TProtocol("/meshsub/1.2.0")
    for number in range(MESSAGES):
        data = number.to_bytes(4, "big") + bytes(MAX_ENVELOPE_BYTES - 4)
        router.mcache.put(rpc_pb2.Message(data=data, topicIDs=[tools.TOPIC]))
    return router


async def ask(mesh: Any, topic: str, peer: ID) -> None:
    await mesh.handle_iwant(rpc_pb2.ControlIWant(messageIDs=mesh.mcache.recent(topic)), peer)


def taken(mesh: Any, peer: ID) -> list[Any]:
    """Return what waits for a peer, which takes it."""
    rpcs = []
    while (rpc := mesh.pubsub.peer_queues[peer]._queue.pop()) is not None:
        rpcs.append(rpc)
    return rpcs


async def test_peers_that_ask_for_everything_and_take_nothing_hold_little(mesh: Any, tools: Any) -> None:
    for _ in range(3):
        for peer in PEERS:
            await ask(mesh, tools.TOPIC, peer)
    waiting = [taken(mesh, peer) for peer in PEERS]
    assert max(sum(rpc.ByteSize() for rpc in rpcs) for rpcs in waiting) <= LIMITS.outbound_bytes
    held = {id(rpc): rpc for rpcs in waiting for rpc in rpcs}
    assert len(held) == len(waiting[0]) == LIMITS.outbound_bytes // waiting[0][0].ByteSize()


async def test_a_peer_that_reads_its_answers_gets_everything(mesh: Any, tools: Any) -> None:
    """What had no room is no answer: it is sent when it is asked for again."""
    got: set[bytes] = set()
    wanted = mesh.mcache.recent(tools.TOPIC)
    asked = 0
    while missing := [identity for identity in wanted if identity not in got]:
        mesh._check_iwant_rate_limit = lambda _peer: True  # of many seconds, in one here
        await mesh.handle_iwant(rpc_pb2.ControlIWant(messageIDs=missing), PEERS[0])
        got |= {message_id(tools.TOPIC, rpc.publish[0].data) for rpc in taken(mesh, PEERS[0])}
        asked += 1
    assert asked == -(-MESSAGES // (LIMITS.outbound_bytes // (MAX_ENVELOPE_BYTES + 64)))


async def test_messages_that_wait_leave_room_for_control_messages(mesh: Any, tools: Any) -> None:
    await ask(mesh, tools.TOPIC, PEERS[0])
    await mesh.emit_control_message(
        rpc_pb2.ControlMessage(prune=[rpc_pb2.ControlPrune(topicID=tools.TOPIC)]), PEERS[0]
    )
    first = taken(mesh, PEERS[0])[0]
    assert [prune.topicID for prune in first.control.prune] == [tools.TOPIC]


def _rpc(size_bytes: int) -> Any:
    """Return an RPC with a message, of exactly that many bytes."""
    rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes(size_bytes))])
    return rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes(2 * size_bytes - rpc.ByteSize()))])


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(16, 90), st.booleans()))))
def test_it_holds_what_fits_in_order_and_no_more(course: list[tuple[int, bool] | None]) -> None:
    """None takes one RPC out. A model keeps two lists."""
    limits = TransportLimits(outbound_queue=4, outbound_bytes=200)
    queue = RpcQueue()
    queue.push(_rpc(50))
    OutboundQueue.bound(queue, limits)
    held: dict[bool, list[Any]] = {True: [], False: [_rpc(50)]}
    for step in course:
        if step is None:
            first = held[bool(held[True])]
            assert queue._queue.pop() == (first.pop(0) if first else None)
        else:
            rpc, priority = _rpc(step[0]), step[1]
            waiting = held[True] + held[False]
            most = 200 + LIMITS.control_bytes * priority
            fits = len(waiting) < 4 and sum(each.ByteSize() for each in waiting) + rpc.ByteSize() <= most
            assert queue.push(rpc, priority) == fits
            held[priority] += [rpc] * fits
        assert len(queue) == len(held[True]) + len(held[False])


def test_control_messages_are_bounded_too() -> None:
    queue = RpcQueue()
    OutboundQueue.bound(queue, LIMITS)
    announced = [bytes(32)] * 4000
    control = rpc_pb2.ControlMessage(ihave=[rpc_pb2.ControlIHave(topicID="topic", messageIDs=announced)])
    rpc = rpc_pb2.RPC(control=control)
    while queue.push(rpc, priority=True):
        pass
    assert len(queue) == (LIMITS.outbound_bytes + LIMITS.control_bytes) // rpc.ByteSize()
