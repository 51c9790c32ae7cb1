"""A relay that may not send all that it has to forward gives every author its turn, and announces all."""

from __future__ import annotations

from typing import Any

import pytest
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.rpc_queue import RpcQueue

from sapo_client.swarm.intake import message_id
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol.errors import Verdict

LIMITS = TransportLimits()
PLACES = 448
"""Of the queue, for others' messages."""

SENDER, NEIGHBOUR = (peer_id_from_key(bytes([number]) * 32) for number in (1, 2))
LOUD = [b"loud %d" % number for number in range(600)]


@pytest.fixture
def relay(make_transport: Any, tools: Any) -> Any:
    """Return a transport that does not run, whose queue to a neighbour in the mesh nobody empties."""
    transport = make_transport(3)
    transport.subscribe(tools.TOPIC, lambda *_: Verdict.ACCEPT, lambda message: message.split()[0].decode())
    mesh, neighbour = transport._mesh, ID.from_base58(NEIGHBOUR)
    mesh.mesh[tools.TOPIC] = {neighbour}
    mesh.peer_protocol[neighbour] = TProtocol("/meshsub/1.2.0")
    queue = transport._gossip.peer_queues[neighbour] = RpcQueue()
    mesh.bound(queue, LIMITS)
    return transport


def sent(relay: Any) -> list[bytes]:
    """Return what waits for the neighbour, in the order in which it would be sent."""
    (queue,) = relay._gossip.peer_queues.values()
    return [rpc.publish[0].data for _ in range(len(queue)) if (rpc := queue._queue.pop()) is not None]


async def test_quiet_authors_go_in_turns_with_a_loud_one(relay: Any, tools: Any) -> None:
    """In the order of arrival they had found the queue full."""
    for data in [*LOUD, b"quiet 0", b"quiet 1", b"other 0"]:
        relay.relay(tools.TOPIC, data, SENDER)
    first = [LOUD[0], b"quiet 0", b"other 0", LOUD[1], b"quiet 1"]
    assert sent(relay) == [*first, *LOUD[2 : PLACES - 3]]
    assert relay.counters()["dropped_before_sending"] == len(LOUD) + 3 - PLACES


async def test_messages_without_an_author_go_in_turns_of_who_brought_them(
    make_transport: Any, relay: Any
) -> None:
    relay.subscribe("topic", lambda *_: Verdict.ACCEPT)
    relay._mesh.mesh["topic"] = {ID.from_base58(NEIGHBOUR)}
    other = peer_id_from_key(bytes([4]) * 32)
    for data, came_from in ((b"1", SENDER), (b"2", SENDER), (b"3", other)):
        relay.relay("topic", data, came_from)
    assert sent(relay) == [b"1", b"3", b"2"]


async def test_of_too_many_messages_each_authors_newest_are_announced(relay: Any, tools: Any) -> None:
    """The oldest 256 had been announced, whoever wrote them."""
    for data in [*LOUD[:300], b"quiet 0", *LOUD[300:]]:
        relay.relay(tools.TOPIC, data, SENDER)
    newcomer = ID.from_base58(peer_id_from_key(bytes([5]) * 32))
    relay._mesh.mesh[tools.TOPIC] = set()
    relay._gossip.peer_topics[tools.TOPIC] = {newcomer}
    relay._gossip.peer_queues[newcomer] = RpcQueue()
    announced = relay._mesh.gossip_heartbeat()[newcomer][tools.TOPIC]
    assert announced == [message_id(tools.TOPIC, data) for data in [b"quiet 0", *LOUD[-255:]]]
