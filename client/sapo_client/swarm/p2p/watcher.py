"""Connections that open and close, as plain callbacks with peer ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from libp2p.abc import INotifee


class ConnectionNotifee(INotifee):  # type: ignore[misc]
    """Calls `arrived` for each new connection and `left` when a peer's last one ended."""

    def __init__(self, arrived: Callable[[str], None], left: Callable[[str], None]) -> None:
        self._arrived = arrived
        self._left = left

    async def connected(self, network: Any, connection: Any) -> None:
        """A connection opened."""
        await trio.lowlevel.checkpoint()
        self._arrived(str(connection.muxed_conn.peer_id))

    async def disconnected(self, network: Any, connection: Any) -> None:
        """A connection closed."""
        await trio.lowlevel.checkpoint()
        peer = connection.muxed_conn.peer_id
        if not network.get_connections(peer):
            self._left(str(peer))

    async def opened_stream(self, network: Any, stream: Any) -> None:
        """Not of interest."""

    async def closed_stream(self, network: Any, stream: Any) -> None:
        """Not of interest."""

    async def listen(self, network: Any, multiaddr: Any) -> None:
        """Not of interest."""

    async def listen_close(self, network: Any, multiaddr: Any) -> None:
        """Not of interest."""
