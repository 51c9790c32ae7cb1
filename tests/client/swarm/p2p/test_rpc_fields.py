"""RPCs that are small on the wire and large in memory are refused before they are parsed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libp2p.pubsub.pb import rpc_pb2

from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p import rpc_fields
from sapo_client.swarm.p2p.frames import frame
from sapo_client.swarm.p2p.rpc_fields import MAX_FIELDS, has_few_fields

LIMITS = TransportLimits()
MOST_BYTES = LIMITS.max_message_bytes + LIMITS.rpc_overhead_bytes
IDS = [bytes([n]) * 32 for n in range(256)]


def field(number: int, body: bytes) -> bytes:
    """Return a field of bytes of a protobuf message."""
    return bytes([number << 3 | 2]) + frame(body)


EMPTY = {number: field(number, b"") for number in range(1, 9)}
MANY = MOST_BYTES // 2 - 16
BOMBS = {
    "subscriptions": EMPTY[1] * MANY,
    "messages": EMPTY[2] * MANY,
    "control parts": EMPTY[3] * MANY,
    "topics of a message": field(2, EMPTY[4] * MANY),
    "ids of an announcement": field(3, field(1, EMPTY[2] * MANY)),
    "ids of a request": field(3, field(2, EMPTY[1] * MANY)),
    "unwanted ids": field(3, field(5, EMPTY[1] * MANY)),
    "peers of a prune": field(3, field(4, EMPTY[2] * MANY)),
    **{f"control messages of kind {number}": field(3, EMPTY[number] * MANY) for number in range(1, 9)},
    "a few in each of many": field(3, field(4, EMPTY[2] * 20) * (MANY // 24)),
}


@pytest.mark.parametrize("rpc", BOMBS.values(), ids=BOMBS)
def test_submessages_without_content_are_counted(rpc: bytes) -> None:
    rpc_pb2.RPC().ParseFromString(rpc)
    assert len(rpc) <= MOST_BYTES
    assert not has_few_fields(rpc)


def test_the_largest_rpcs_of_honest_peers_pass() -> None:
    topic = "sapo/1/" + 64 * "a" + "/certificates/65535"
    announced = [rpc_pb2.ControlIHave(topicID=topic, messageIDs=IDS) for _ in range(16)]
    many_topics = [rpc_pb2.ControlPrune(topicID=topic, backoff=60) for _ in range(64)]
    for rpc in (
        rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes(LIMITS.max_message_bytes), topicIDs=[topic])]),
        rpc_pb2.RPC(control=rpc_pb2.ControlMessage(ihave=announced, prune=many_topics)),
        rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for _ in range(256)]),
    ):
        assert has_few_fields(rpc.SerializeToString())
    assert MAX_FIELDS > 64 * 257 + 129


@given(
    subscriptions=st.integers(0, 4),
    topics=st.lists(st.integers(0, 3), max_size=3),
    ihave=st.lists(st.integers(0, 4), max_size=3),
    prune=st.lists(st.integers(0, 3), max_size=3),
)
def test_the_count_is_that_of_the_parsed_message(
    subscriptions: int, topics: list[int], ihave: list[int], prune: list[int]
) -> None:
    control = rpc_pb2.ControlMessage(
        ihave=[rpc_pb2.ControlIHave(topicID="t", messageIDs=IDS[:number]) for number in ihave],
        prune=[
            rpc_pb2.ControlPrune(backoff=300, peers=[rpc_pb2.PeerInfo(peerID=b"p")] * number)
            for number in prune
        ],
    )
    rpc = rpc_pb2.RPC(
        subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid="t")] * subscriptions,
        publish=[rpc_pb2.Message(data=b"x", topicIDs=["t"] * number) for number in topics],
        control=control,
    ).SerializeToString()
    fields = subscriptions + 1 + sum(2 + number for number in topics)
    fields += sum(2 + number for number in ihave) + sum(2 + number for number in prune)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc_fields, "MIN_COUNTED_BYTES", 0)
        patch.setattr(rpc_fields, "MAX_FIELDS", fields)
        assert has_few_fields(rpc)
        patch.setattr(rpc_fields, "MAX_FIELDS", fields - 1)
        assert not has_few_fields(rpc)


@given(rpc=st.binary(max_size=200))
def test_any_bytes_have_an_answer(rpc: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc_fields, "MIN_COUNTED_BYTES", 0)
        has_few_fields(rpc)


@pytest.mark.parametrize("kind", ["subscriptions", "control messages of kind 3", "peers of a prune"])
async def test_such_rpcs_are_penalised_and_disconnect_their_sender(
    kind: str, swarm: Any, tools: Any, hostile: Any
) -> None:
    """On 56 streams of one connection they held 220 MiB, without a penalty."""
    victim, honest = await swarm.start_members(2)
    await hostile.connect(victim.transport.addresses[0])
    stream = await hostile.open(victim.peer_id)
    await stream.write(frame(BOMBS[kind]))
    await tools.eventually(lambda: victim.transport.counters()["malformed_frames"] == 1)
    assert victim.transport.score(hostile.peer_id) < 0
    await tools.eventually(lambda: tools.subscribed_peers(honest) == 1)
    await honest.publish(b"after the bomb")
    await tools.eventually(lambda: b"after the bomb" in victim.accepted)
