"""Subscriptions of two bytes, and to random topics, cost this node little."""

from __future__ import annotations

from typing import Any, Final

import pytest
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from support.calls import calls_of

from sapo_client.swarm.p2p import gossip
from sapo_client.swarm.p2p.frames import frame
from sapo_client.swarm.p2p.gossip import _MIN_SUBSCRIPTION_BYTES, _WELCOMES, GossipService
from sapo_client.swarm.p2p.mesh import Mesh

RPCS: Final = 40
TURNS: Final = 128


def turning(topic: str) -> bytes:
    """Return an RPC that subscribes to a topic and unsubscribes from it in turns."""
    turns = [rpc_pb2.RPC.SubOpts(subscribe=each % 2 == 0, topicid=topic) for each in range(2 * TURNS)]
    return frame(rpc_pb2.RPC(subscriptions=turns).SerializeToString())


@pytest.mark.parametrize("is_joined", [True, False])
async def test_endless_subscriptions_start_few_tasks(
    is_joined: bool, swarm: Any, tools: Any, hostile: Any
) -> None:
    """Of 270 KB of them a node was busy for eleven seconds, and lost its connections meanwhile."""
    victim, honest = await swarm.start_members(2)
    await swarm.wait_until_connected([victim, honest])
    await hostile.connect(victim.transport.addresses[0])
    stream = await hostile.open(victim.peer_id)
    with calls_of(Mesh.on_peer_subscribed) as welcomed:
        for number in range(RPCS):
            await stream.write(turning(tools.TOPIC if is_joined else f"topic {number}"))
        last = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=b"a last one", topicIDs=[tools.TOPIC])])
        await stream.write(frame(last.SerializeToString()))
        await tools.eventually(lambda: b"a last one" in victim.accepted)
        assert welcomed() <= (2 * _WELCOMES.burst if is_joined else 0)
    assert tools.subscribed_peers(honest) == 1


async def test_all_subscriptions_are_known_whether_acted_upon_or_not(
    swarm: Any, tools: Any, hostile: Any
) -> None:
    victim = await swarm.start(1)
    await hostile.connect(victim.transport.addresses[0])
    stream, peer = await hostile.open(victim.peer_id), ID.from_base58(hostile.peer_id)
    topics = [f"topic {number}" for number in range(gossip._MAX_TOPICS_PER_PEER)]
    subscribed = [rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for topic in topics]
    service: GossipService = victim.transport._gossip

    def known() -> set[str]:
        return {topic for topic, peers in service.peer_topics.items() if peer in peers}

    await stream.write(
        turning(tools.TOPIC) + frame(rpc_pb2.RPC(subscriptions=subscribed).SerializeToString())
    )
    await tools.eventually(lambda: known() == set(topics))
    one_more = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=tools.TOPIC)
    first_ends = rpc_pb2.RPC.SubOpts(subscribe=False, topicid=topics[0])
    await stream.write(frame(rpc_pb2.RPC(subscriptions=[one_more, first_ends]).SerializeToString()))
    await tools.eventually(lambda: known() == set(topics[1:]))
    await stream.write(frame(rpc_pb2.RPC(subscriptions=[one_more]).SerializeToString()))
    await tools.eventually(lambda: known() == {*topics[1:], tools.TOPIC})


def test_a_subscription_counts_as_much_as_an_honest_one() -> None:
    topic = "sapo/1/" + 64 * "a" + "/rollouts/65535"
    assert rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic).ByteSize() + 6 >= _MIN_SUBSCRIPTION_BYTES
