"""Floods that cost a peer few bytes cost this node only a bounded time."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from libp2p.io.exceptions import IOException
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.yamux.yamux import (
    FLAG_RST,
    FLAG_SYN,
    TYPE_DATA,
    TYPE_PING,
    TYPE_WINDOW_UPDATE,
    YAMUX_HEADER_FORMAT,
)

from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.p2p.frames import frame
from sapo_client.swarm.p2p.muxer import BoundedYamux
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.rate_limit import Meter
from sapo_protocol.ed25519 import public_key

LIMITS = TransportLimits()
PEER = ID.from_base58(peer_id_from_key(public_key(bytes([77]) * 32)))
SECONDS = 10


def header(kind: int, flags: int, stream: int, length: int = 0) -> bytes:
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, stream, length)


HEADERS = {
    "empty data": header(TYPE_DATA, 0, 1),
    "windows": header(TYPE_WINDOW_UPDATE, 0, 1, 1),
    "pings": header(TYPE_PING, FLAG_SYN, 0),
    "resets of nothing": header(TYPE_WINDOW_UPDATE, FLAG_RST, 9),
}


@dataclass
class EndlessConnection:
    """A secured connection over which a peer sends the same bytes again and again, as fast as they are read.

    Attributes:
        most: reads after which it ends, so that no test lasts for ever.
    """

    sent: bytes
    most: int
    is_initiator: bool = False
    reads: int = 0

    async def read(self, _max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        if self.reads > self.most:
            raise IOException("the peer has enough")
        return self.sent

    async def write(self, _data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("sent", HEADERS.values(), ids=HEADERS)
async def test_headers_without_data_are_read_at_a_rate(sent: bytes, autojump_clock: object) -> None:
    limits = TransportLimits(reads=Rate(per_second=100, burst=400))
    allowed = 400 + SECONDS * 100
    endless: Any = EndlessConnection(sent, most=2 * allowed)
    blamed: list[str] = []
    muxer = BoundedYamux(
        endless, PEER, limits=limits, blame=lambda peer, _: blamed.append(peer), report=lambda _: None
    )
    with trio.move_on_after(SECONDS):
        await muxer.start()
    assert 400 <= endless.reads <= allowed
    assert blamed == []


def test_a_connection_is_read_as_often_as_the_ceiling_of_messages_needs() -> None:
    """A header and a body for each message, and as much again for requests, windows and control."""
    assert LIMITS.reads.per_second >= 4 * LIMITS.rates_for(1e12).messages.per_second


def test_an_honest_relay_of_short_messages_passes_with_as_many_control_messages() -> None:
    meter, passed, per_second = Meter(LIMITS), 0, int(LIMITS.messages.per_second)
    for number in range(30 * per_second):
        now = number / per_second
        passed += meter.take("relay", 1, max(200, LIMITS.min_rpc_bytes), now)
        passed += meter.take("relay", 0, max(40, LIMITS.min_rpc_bytes), now)
    assert passed == 2 * 30 * per_second


async def test_empty_rpcs_count_as_a_flood(swarm: Any, tools: Any, hostile: Any) -> None:
    victim, honest = await swarm.start_members(2)
    await hostile.connect(victim.transport.addresses[0])
    stream = await hostile.open(victim.peer_id)
    with contextlib.suppress(StreamError):  # the victim may hang up before it has read everything
        await stream.write(bytes(64 * 1024))  # a length of zero each
    await tools.eventually(lambda: hostile.peer_id not in victim.peer_ids())
    assert victim.transport.score(hostile.peer_id) < 0
    await _still_serves(swarm, tools, victim, honest)


async def test_opening_and_resetting_streams_is_penalised_and_disconnected(
    swarm: Any, tools: Any, hostile: Any
) -> None:
    victim, honest = await swarm.start_members(2)
    await hostile.connect(victim.transport.addresses[0])
    await tools.eventually(lambda: hostile.peer_id in victim.peer_ids())
    [connection] = hostile._host.get_network().connections.copy().popitem()[1]
    pairs = (
        header(TYPE_WINDOW_UPDATE, FLAG_SYN, number) + header(TYPE_WINDOW_UPDATE, FLAG_RST, number)
        for number in range(10_001, 10_401, 2)
    )
    await connection.muxed_conn.secured_conn.write(b"".join(pairs))
    await tools.eventually(lambda: hostile.peer_id not in victim.peer_ids())
    assert victim.transport.score(hostile.peer_id) < 0
    await _still_serves(swarm, tools, victim, honest)


async def test_messages_beyond_the_rate_are_dropped_before_they_are_validated(
    swarm: Any, tools: Any, hostile: Any
) -> None:
    """A validation may take a signature check, so a penalty afterwards would come too late."""
    victim = await swarm.start(1, limits=TransportLimits(messages=Rate(per_second=1e-6, burst=3)))
    await hostile.connect(victim.transport.addresses[0])
    stream = await hostile.open(victim.peer_id)
    for number in range(8):
        message = rpc_pb2.Message(data=b"a%d" % number, topicIDs=[tools.TOPIC])
        await stream.write(frame(rpc_pb2.RPC(publish=[message]).SerializeToString()))
    await tools.eventually(lambda: victim.transport.counters()["flood_pauses"] == 5)
    assert victim.transport.counters()["received"] == 3


async def _still_serves(swarm: Any, tools: Any, victim: Any, honest: Any) -> None:
    await tools.eventually(lambda: tools.subscribed_peers(honest) == 1)
    await honest.publish(b"after the flood")
    await tools.eventually(lambda: b"after the flood" in victim.accepted)
    assert swarm.bugs == []
    assert victim.transport.score(honest.peer_id) == 0
