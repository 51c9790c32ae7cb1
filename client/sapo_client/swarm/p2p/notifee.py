"""Reports connections that open and close as plain callbacks with peer ids."""

from __future__ import annotations

from collections.abc import Callable

import trio
from libp2p.abc import INetConn, INetStream, INetwork, INotifee
from multiaddr.multiaddr import Multiaddr


class ConnectionNotifee(INotifee):
    """Calls `arrived` for each new connection and `left` when a peer's last one ended."""

    def __init__(self, arrived: Callable[[str], None], left: Callable[[str], None]) -> None:
        self._arrived = arrived
        self._left = left

    async def connected(self, network: INetwork, conn: INetConn) -> None:
        """Report a connection that opened."""
        await trio.lowlevel.checkpoint()
        self._arrived(str(conn.muxed_conn.peer_id))

    async def disconnected(self, network: INetwork, conn: INetConn) -> None:
        """Report a peer whose last connection closed."""
        await trio.lowlevel.checkpoint()
        peer = conn.muxed_conn.peer_id
        if not network.get_connections(peer):
            self._left(str(peer))

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None:
        """Ignore streams."""

    async def closed_stream(self, network: INetwork, stream: INetStream) -> None:
        """Ignore streams."""

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None:
        """Ignore listeners."""

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None:
        """Ignore listeners."""
