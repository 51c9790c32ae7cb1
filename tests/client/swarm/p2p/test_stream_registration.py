"""A peer to which gossip could not open a stream at first."""

from __future__ import annotations

from typing import Any

from libp2p.custom_types import TProtocol

MESHSUB = TProtocol("/meshsub/1.2.0")
STREAMS_BEFORE_GOSSIP_IS_SERVED = 3


async def test_a_peer_that_did_not_take_the_first_stream_is_asked_again(
    swarm: Any, tools: Any, hostile: Any
) -> None:
    """As one on a busy machine that answers too late; stock gives it up while it stays connected."""
    host = hostile._host
    came: list[Any] = []
    heard: list[Any] = []

    async def count(stream: Any) -> None:
        came.append(stream)
        await host._swarm_stream_handler(stream)

    async def hear(stream: Any) -> None:
        heard.append(await stream.read(1))

    host.swarm.set_stream_handler(count)
    node = await swarm.start(1)
    await hostile.connect(node.transport.addresses[0])
    await tools.eventually(lambda: len(came) >= STREAMS_BEFORE_GOSSIP_IS_SERVED)
    assert heard == []
    host.set_stream_handler(MESHSUB, hear)
    await tools.eventually(lambda: bool(heard))
