"""Peer ids are free: a peer that is gone leaves nothing in the gossip service, whatever it sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2

from sapo_client.swarm.p2p import mesh
from sapo_client.swarm.p2p.frames import frame
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol.ed25519 import public_key

IDS: Final = [bytes([n]) * 32 for n in range(4)]
TEMPORARY: Final = {"graft_flood_tracking", "back_off", "_lapsed_seconds"}
"""Kept for some time after a peer has left, so that it gains nothing by coming back, and bounded."""


def _everything(topic: str) -> rpc_pb2.RPC:
    """Return an RPC with every kind of control message about a topic."""
    return rpc_pb2.RPC(
        subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic)],
        control=rpc_pb2.ControlMessage(
            ihave=[rpc_pb2.ControlIHave(topicID=topic, messageIDs=IDS)],
            iwant=[rpc_pb2.ControlIWant(messageIDs=IDS)],
            graft=[rpc_pb2.ControlGraft(topicID=topic)],
            idontwant=[rpc_pb2.ControlIDontWant(messageIDs=IDS)],
        ),
    )


def _prune(topic: str, backoff: int) -> rpc_pb2.RPC:
    prune = rpc_pb2.ControlPrune(topicID=topic, backoff=backoff)
    return rpc_pb2.RPC(control=rpc_pb2.ControlMessage(prune=[prune]))


def _places_of(peer: ID, found: object, where: str) -> Iterator[str]:
    """Yield the places at which mappings and sets name a peer."""
    if isinstance(found, dict):
        if peer in found:
            yield where
        for key, value in found.items():
            yield from _places_of(peer, value, f"{where}.{key}")
    elif isinstance(found, set) and peer in found:
        yield where


async def test_a_peer_that_opens_no_stream_to_us_is_forgotten(swarm: Any, tools: Any, hostile: Any) -> None:
    """The hostile peer does not serve gossip, so that this node never has a stream to it."""
    victim = await swarm.start(1)
    gossip, peer = victim.transport._gossip, ID.from_base58(hostile.peer_id)
    await hostile.connect(victim.transport.addresses[0])
    stream = await hostile.open(victim.peer_id)
    for rpc in (_everything(tools.TOPIC), _prune(tools.TOPIC, backoff=60)):
        await stream.write(frame(rpc.SerializeToString()))
    await tools.eventually(lambda: peer in gossip.router.back_off.get(tools.TOPIC, {}))
    await hostile.disconnect(victim.peer_id)
    await tools.eventually(lambda: hostile.peer_id not in victim.peer_ids())

    def places() -> set[str]:
        parts = {"gossip": gossip, "router": gossip.router, "requested": gossip.router._requested}
        found = [
            place
            for name, part in parts.items()
            for attribute, value in vars(part).items()
            if attribute not in TEMPORARY
            for place in _places_of(peer, value, f"{name}.{attribute}")
        ]
        return set(found)

    await tools.eventually(lambda: not places())


async def test_what_peers_asked_for_before_they_left_is_bounded(
    make_transport: Callable[..., Any], tools: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh, "_MAX_BACK_OFFS", 16)
    router = make_transport()._mesh
    router.mesh[tools.TOPIC] = set()
    peers = [ID.from_base58(peer_id_from_key(public_key(bytes([n]) * 32))) for n in range(1, 41)]
    for peer in peers:
        await router.handle_rpc(_prune(tools.TOPIC, backoff=2**63), peer)
    back_offs = router.back_off[tools.TOPIC]
    assert list(back_offs) == peers[-16:]
    assert max(back_offs.values()) <= time.time() + mesh._MAX_BACK_OFF_SECONDS


async def test_of_the_streams_of_a_peer_the_newest_two_are_read(swarm: Any, tools: Any, hostile: Any) -> None:
    """Each stream may hold a part of an RPC."""
    victim = await swarm.start(1)
    await hostile.connect(victim.transport.addresses[0])
    streams = []
    for number in range(4):
        streams.append(await hostile.open(victim.peer_id))
        sent = b"a%d" % number
        rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=sent, topicIDs=[tools.TOPIC])]).SerializeToString()
        await streams[-1].write(frame(rpc) + frame(rpc)[:-1])
        await tools.eventually(lambda: victim.accepted[-1:] == [sent])  # noqa: B023 - awaited at once
    for stream in streams[:2]:
        with pytest.raises(StreamError):
            await stream.read(1)
    assert victim.transport.score(hostile.peer_id) == 0
    assert swarm.bugs == []
