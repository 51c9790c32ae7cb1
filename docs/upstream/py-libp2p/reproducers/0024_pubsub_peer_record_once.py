"""Each RPC carries a signed peer record."""

from __future__ import annotations

from typing import Any

from support import ANOTHER_PEER, PEER, TOPIC, main, message, new_pubsub, queued, register


async def reproduce() -> str:
    """Return the fault that was found."""
    pubsub = new_pubsub()
    queue = register(pubsub)
    router: Any = pubsub.router
    await router.publish(ANOTHER_PEER, message(bytes(2048), from_id=b"a", seqno=b"1"))
    await router.emit_graft(TOPIC, PEER)
    rpcs = list(queued(queue))
    with_record = sum(rpc.HasField("senderRecord") for rpc in rpcs)
    return f"{with_record} of {len(rpcs)} RPCs carry the record" if with_record else ""


if __name__ == "__main__":
    main(reproduce)
