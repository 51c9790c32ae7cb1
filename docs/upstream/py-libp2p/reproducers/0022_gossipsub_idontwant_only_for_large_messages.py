"""Each small message is announced by a message of its own."""

from __future__ import annotations

from support import ANOTHER_PEER, main, message, new_pubsub, queued, register


async def reproduce() -> str:
    """Return the fault that was found."""
    pubsub = new_pubsub()
    queue = register(pubsub)
    await pubsub.router.publish(ANOTHER_PEER, message(b"small", from_id=b"a", seqno=b"1"))
    announcements = sum(len(rpc.control.idontwant) for rpc in queued(queue))
    return "IDONTWANT is sent for a message of 5 bytes" if announcements else ""


if __name__ == "__main__":
    main(reproduce)
