"""Table of connections that releases its slots, refuses banned peers and reserves places for vouched ones.

Stock holds the slot and the task of every inbound connection until the whole swarm ends: after as many
connections as there are slots, no peer can connect any more. Closing a peer there also forgets a
connection that the same peer opened in the meantime. And its auto-connector dials whatever addresses
are known, at a low watermark of zero too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio
from libp2p.abc import IMuxedConn, IPeerStore
from libp2p.io.abc import ReadWriteCloser
from libp2p.metrics.swarm import SwarmEvent
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.exceptions import SwarmException
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.transport.tcp.tcp import TCP
from multiaddr.multiaddr import Multiaddr

from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.muxer import BoundedUpgrader, BoundedYamux
from sapo_client.swarm.vouched import VouchedPeers


class NoAutoConnector(AutoConnector):
    """Auto-connector that never starts: our own discovery decides which peers to dial."""

    async def start(self) -> None:
        """Stay idle."""

    def record_disconnect(self, peer_id: ID) -> None:
        """Store no entry: stock keeps one for every peer id that ever left."""


class GuardedSwarm(Swarm):
    """Swarm of connections; `admits` decides whether a peer id may be connected at all."""

    def __init__(
        self,
        peer: ID,
        peerstore: IPeerStore,
        upgrader: BoundedUpgrader,
        *,
        connection_config: ConnectionConfig,
        limits: TransportLimits,
        admits: Callable[[str], bool],
        vouched: VouchedPeers,
        report: Callable[[Exception], None],
    ) -> None:
        super().__init__(
            peer_id=peer,
            peerstore=peerstore,
            upgrader=upgrader,
            transports=[TCP()],
            retry_config=RetryConfig(max_retries=0),  # our dialler has a back-off of its own
            connection_config=connection_config,
        )
        self._admits = admits
        self._vouched = vouched
        self._report = report
        self._most_strangers = max(1, int(limits.max_connections * limits.stranger_share))
        self._most_without_trust = max(1, int(limits.max_connections * limits.untrusted_share))
        self.auto_connector = NoAutoConnector(self)
        self._inbound_limiter = trio.CapacityLimiter(
            max(1, int(limits.max_connections * limits.inbound_share))
        )

    async def _do_handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr, failure_event: SwarmEvent
    ) -> None:
        connection = RawConnection(read_write_closer, False)
        try:
            with ContainExceptions(self._report):
                muxed = await self.upgrade_inbound_raw_conn(connection, maddr)
                await cast(BoundedYamux, muxed).event_closed.wait()  # our upgrader builds no other muxer
        finally:
            with ContainExceptions(self._report):
                await connection.close()

    async def stop_listening(self) -> None:
        """Close the listening sockets; stock leaves them open when it is cancelled, while trio runs.

        The node of the next terms listens at the same addresses: the kernel would divide new connections
        between its sockets and these.
        """
        for listener in self.listeners.values():
            await listener.close()

    async def close_peer(self, peer_id: ID) -> None:
        """Close the connections that the peer has now."""
        for connection in self.get_connections(peer_id):
            with ContainExceptions(self._report):
                await connection.close()

    async def add_conn(self, muxed_conn: IMuxedConn, direction: str = "unknown") -> SwarmConn:
        """Register a connection whose peer id is proven; refuse those we do not want."""
        if not self._admits(str(muxed_conn.peer_id)):
            await muxed_conn.close()
            raise SwarmException("peer is not admitted")
        if not muxed_conn.is_initiator and self._is_one_stranger_too_many(str(muxed_conn.peer_id)):
            await muxed_conn.close()
            raise SwarmException("the places that are left are kept for other peers")
        return await super().add_conn(muxed_conn, direction)

    def _is_one_stranger_too_many(self, peer_id: str) -> bool:
        """Whether all places for the kind of the connecting peer are taken; peers with earned trust always
        have one.

        Bonded peers may take half of the reserved places, so that bonds cannot buy all of them.
        """
        if self._vouched.has_earned(peer_id):
            return False
        came = [
            str(peer)
            for peer, connections in self.connections.items()
            if any(not each.muxed_conn.is_initiator for each in connections)
        ]
        without_trust = len(came) - self._vouched.earned_among(came)
        if peer_id in self._vouched:
            return without_trust >= self._most_without_trust
        return without_trust - self._vouched.bonded_among(came) >= self._most_strangers
