"""A healthy mesh grows on each heartbeat."""

from __future__ import annotations

from typing import Any

import trio
from support import TOPIC, main, new_pubsub, peer_id, register


async def reproduce() -> str:
    """Return the fault that was found."""
    await trio.lowlevel.checkpoint()
    pubsub = new_pubsub(eclipse_protection_enabled=False)
    for number in range(12):
        register(pubsub, peer_id(100 + number))
    router: Any = pubsub.router
    members = router.mesh[TOPIC]
    for peer in list(members)[5:]:
        members.discard(peer)
    router.mesh_heartbeat()
    return f"a mesh of 5 equal peers has {len(members)} after a heartbeat" if len(members) != 5 else ""


if __name__ == "__main__":
    main(reproduce)
