"""The second anonymous message is not forwarded."""

from __future__ import annotations

from support import ANOTHER_PEER, main, message, new_pubsub, queued, register


async def reproduce() -> str:
    """Return the fault that was found."""
    pubsub = new_pubsub()
    queue = register(pubsub)
    for data in (b"one", b"two"):
        await pubsub.router.publish(ANOTHER_PEER, message(data))
    forwarded = [rpc.publish[0].data for rpc in queued(queue) if rpc.publish]
    return "" if forwarded == [b"one", b"two"] else f"forwarded only {forwarded}"


if __name__ == "__main__":
    main(reproduce)
