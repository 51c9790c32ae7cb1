"""A burst of more than 32 messages is dropped, and the limit cannot be changed."""

from __future__ import annotations

from libp2p.tools.anyio_service import background_trio_service
from support import LOOPBACK, connect, main, new_host, new_pubsub

SIZE = 50


async def reproduce() -> str:
    """Return the fault that was found."""
    host, other = new_host(201), new_host(202)
    try:
        pubsub = new_pubsub(host, pubsub={"outbound_queue_size": SIZE})
    except TypeError:
        return "there is no such option"
    their_pubsub = new_pubsub(other)
    async with (
        host.run([LOOPBACK]),
        other.run([LOOPBACK]),
        background_trio_service(pubsub),
        background_trio_service(their_pubsub),
    ):
        await connect(host, other)
        await pubsub.wait_for_peer(other.get_id())
        size = pubsub.peer_queues[other.get_id()]._queue.max_size
    return "" if size == SIZE else f"the queue holds {size}"


if __name__ == "__main__":
    main(reproduce)
