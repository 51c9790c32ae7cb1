"""A peer that invents ids makes a node ask for all of them."""

from __future__ import annotations

from typing import Any

from libp2p.pubsub.pb import rpc_pb2
from support import PEER, TOPIC, main, new_pubsub, queued, register

ANNOUNCED = 20_000


async def reproduce() -> str:
    """Return the fault that was found."""
    pubsub = new_pubsub()
    router: Any = pubsub.router
    queue = register(pubsub)
    ids = [number.to_bytes(32, "big") for number in range(ANNOUNCED)]
    await router.handle_ihave(rpc_pb2.ControlIHave(topicID=TOPIC, messageIDs=ids), PEER)
    asked = sum(len(iwant.messageIDs) for rpc in queued(queue) for iwant in rpc.control.iwant)
    return f"it asks for all {asked} ids" if asked == ANNOUNCED else ""


if __name__ == "__main__":
    main(reproduce)
