"""Swarm of connections that frees what it takes and refuses whom we banned.

Stock holds the slot and the task of every inbound connection until the whole swarm ends: after as many
connections as there are slots, nobody gets in any more. Closing a peer there also forgets a connection
that the same peer opened in the meantime. And its auto-connector dials whatever addresses are known,
at a low watermark of zero too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.exceptions import SwarmException
from libp2p.network.swarm import Swarm

from sapo_client.swarm.guard import Contained
from sapo_client.swarm.limits import TransportLimits

_INBOUND_SHARE = 0.75  # the rest of the slots stays free for peers that we choose ourselves


class NoAutoConnector(AutoConnector):  # type: ignore[misc]
    """Never started: whom to dial is decided by our own discovery."""

    async def start(self) -> None:
        """Stay idle."""

    def record_disconnect(self, peer: Any) -> None:
        """Remember nothing: stock keeps an entry for every peer id that ever left."""


class GuardedSwarm(Swarm):  # type: ignore[misc]
    """`admits` tells whether a peer id may be connected at all."""

    def __init__(
        self,
        *args: Any,
        limits: TransportLimits,
        admits: Callable[[str], bool],
        report: Callable[[Exception], None],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._admits = admits
        self._report = report
        self.auto_connector = NoAutoConnector(self)
        self._inbound_limiter = trio.CapacityLimiter(max(1, int(limits.max_connections * _INBOUND_SHARE)))

    async def _do_handle_inbound_connection(self, socket: Any, listener: Any, _failure: Any) -> None:
        connection = RawConnection(socket, False)
        try:
            with Contained(self._report):
                muxed = await self.upgrade_inbound_raw_conn(connection, listener)
                await muxed.event_closed.wait()
        finally:
            with Contained(self._report):
                await connection.close()

    async def close_peer(self, peer: Any) -> None:
        """Close the connections that the peer has now."""
        for connection in self.get_connections(peer):
            with Contained(self._report):
                await connection.close()

    async def add_conn(self, muxed: Any, direction: str = "unknown") -> Any:
        """Register a connection whose peer id is proven; refuse those we do not want."""
        if not self._admits(str(muxed.peer_id)):
            await muxed.close()
            raise SwarmException("peer is not admitted")
        return await super().add_conn(muxed, direction)
