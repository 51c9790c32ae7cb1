"""A peer that comes back is left with the stream of its old connection."""

from __future__ import annotations

from typing import Any

from libp2p.tools.anyio_service import background_trio_service
from support import LOOPBACK, connect, main, new_host, new_pubsub


async def reproduce() -> str:
    """Return the fault that was found."""
    host, other = new_host(201), new_host(202)
    pubsub, their_pubsub = new_pubsub(host), new_pubsub(other)
    async with (
        host.run([LOOPBACK]),
        other.run([LOOPBACK]),
        background_trio_service(pubsub),
        background_trio_service(their_pubsub),
    ):
        await connect(host, other)
        await pubsub.wait_for_peer(other.get_id())
        stream: Any = pubsub.peers[other.get_id()]
        await stream.reset()  # as when the old connection breaks
        await pubsub._handle_new_peer(other.get_id())  # as when the peer connects again
        newest: Any = pubsub.peers[other.get_id()]
        return "messages still go to the stream that is closed" if newest.is_closed else ""


if __name__ == "__main__":
    main(reproduce)
