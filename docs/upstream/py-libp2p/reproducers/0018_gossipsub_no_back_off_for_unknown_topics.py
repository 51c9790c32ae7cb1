"""A peer fills the memory with topics that it invents."""

from __future__ import annotations

from typing import Any

from libp2p.pubsub.pb import rpc_pb2
from support import PEER, main, new_pubsub


async def reproduce() -> str:
    """Return the fault that was found."""
    router: Any = new_pubsub().router
    prunes = [rpc_pb2.ControlPrune(topicID=f"t{number}", backoff=99) for number in range(1000)]
    await router.handle_rpc(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(prune=prunes)), PEER)
    return f"{len(router.back_off)} invented topics are remembered" if router.back_off else ""


if __name__ == "__main__":
    main(reproduce)
