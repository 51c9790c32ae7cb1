"""A small request draws megabytes."""

from __future__ import annotations

from typing import Any

from libp2p.pubsub.pb import rpc_pb2
from support import PEER, main, message, new_pubsub, queued, register


async def reproduce() -> str:
    """Return the fault that was found."""
    pubsub = new_pubsub()
    router: Any = pubsub.router
    queue = register(pubsub)
    router.mcache.put(message(bytes(4096), from_id=PEER.to_bytes(), seqno=bytes(8)))
    [identity] = router.mcache.msgs
    for _ in range(5):
        await router.handle_iwant(rpc_pb2.ControlIWant(messageIDs=[identity] * 100), PEER)
    copies = sum(len(rpc.publish) for rpc in queued(queue))
    return f"one message was sent {copies} times" if copies > 3 else ""


if __name__ == "__main__":
    main(reproduce)
