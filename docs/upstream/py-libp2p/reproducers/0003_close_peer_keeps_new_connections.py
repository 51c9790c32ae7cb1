"""Closing a peer forgets a connection that it opened in the meantime."""

from __future__ import annotations

import trio
from support import PEER, main, new_host


async def reproduce() -> str:
    """Return the fault that was found."""
    network = new_host(201).get_network()

    class Connection:
        """A connection during whose close the peer opens another one."""

        async def close(self) -> None:
            await trio.lowlevel.checkpoint()
            network.connections[PEER] = ["newer"]

    network.connections[PEER] = [Connection()]
    network.cleanup_connection_health = lambda *_: None
    await network.close_peer(PEER)
    return "" if network.connections.get(PEER) == ["newer"] else "the newer connection is forgotten"


if __name__ == "__main__":
    main(reproduce)
