"""Table of connections that releases its slots, refuses banned peers and reserves places for vouched ones.

A peer has a few connections at most, connections that are being registered count as well, and a newcomer
takes the place of a connection whose handshake is not over: otherwise one key, strangers that arrive at the
same moment, or connections that say nothing would take all inbound places. And while the places for strangers
are taken, one of another network gets one of the network with most: otherwise a single host with some keys
would keep all newcomers out.

Stock holds the slot and the task of every inbound connection until the whole swarm ends: after as many
connections as there are slots, no peer can connect any more. Closing a peer there also forgets a
connection that the same peer opened in the meantime. And its auto-connector dials whatever addresses
are known, at a low watermark of zero too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import cast

import trio
from libp2p.abc import IMuxedConn, IPeerStore
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.exceptions import SwarmException
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.transport.tcp.tcp import TCP
from multiaddr.multiaddr import Multiaddr

from sapo_client.swarm.addresses import site_of
from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.p2p.handshakes import Handshakes
from sapo_client.swarm.p2p.muxer import BoundedUpgrader, BoundedYamux
from sapo_client.swarm.vouched import VouchedPeers


class NoAutoConnector(AutoConnector):
    """Auto-connector that never starts: our own discovery decides which peers to dial."""

    async def start(self) -> None:
        """Stay idle."""

    def record_disconnect(self, peer_id: ID) -> None:
        """Store no entry: stock keeps one for every peer id that ever left."""


def _host_of(connection: IMuxedConn) -> str:
    remote = cast(BoundedYamux, connection).get_remote_address()  # our upgrader builds no other muxer
    return "" if remote is None else remote[0]


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
        self._max_strangers = max(1, int(limits.max_connections * limits.stranger_share))
        self._max_without_trust = max(1, int(limits.max_connections * limits.untrusted_share))
        self.auto_connector = NoAutoConnector(self)
        self._inbound_limiter = trio.CapacityLimiter(
            max(1, int(limits.max_connections * limits.inbound_share))
        )
        self._handshakes = Handshakes()
        self._registering: list[tuple[str, str]] = []  # peer ids of inbound connections, with their sites
        self._leaving: set[ID] = set()

    async def _handle_inbound_connection(self, read_write_closer: ReadWriteCloser, maddr: Multiaddr) -> None:
        connection = RawConnection(read_write_closer, False)
        try:
            with ContainExceptions(self._report):
                await self._serve_inbound(connection, maddr)
        finally:
            with ContainExceptions(self._report):
                await connection.close()

    async def _serve_inbound(self, connection: RawConnection, maddr: Multiaddr) -> None:
        """Serve a connection once it has a place, that of another one's handshake if all are taken."""
        remote = connection.get_remote_address()
        async with AsyncExitStack() as place:
            with self._handshakes.begin("" if remote is None else remote[0]) as handshake:
                are_taken = self._inbound_limiter.available_tokens < 1
                if are_taken and not self._handshakes.end_another(handshake):
                    return
                await place.enter_async_context(self._inbound_limiter)
                muxed = await self.upgrade_inbound_raw_conn(connection, maddr)
            if not handshake.cancelled_caught:
                await cast(BoundedYamux, muxed).event_closed.wait()  # our upgrader builds no other muxer

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
        peer_id, leaving = str(muxed_conn.peer_id), None
        refusal = self._refusal(peer_id, is_inbound=not muxed_conn.is_initiator)
        if refusal is None and not muxed_conn.is_initiator and self._is_one_stranger_too_many(peer_id):
            leaving = self._crowding(_host_of(muxed_conn))
            if leaving is None:
                refusal = "the places that are left are kept for other peers"
        if refusal is not None:
            await muxed_conn.close()
            raise SwarmException(refusal)
        connection = await self._register(muxed_conn, direction, leaving)
        if not self._admits(peer_id):  # banned meanwhile for what it did over another connection
            await connection.close()
            raise SwarmException("peer is not admitted any more")
        return connection

    async def _register(self, muxed_conn: IMuxedConn, direction: str, leaving: ID | None) -> SwarmConn:
        if muxed_conn.is_initiator:
            return await super().add_conn(muxed_conn, direction)
        entering = str(muxed_conn.peer_id), site_of(_host_of(muxed_conn))
        self._registering.append(entering)
        try:
            if leaving is not None:
                await self._give_up(leaving)
            return await super().add_conn(muxed_conn, direction)
        finally:
            self._registering.remove(entering)

    def _refusal(self, peer_id: str, *, is_inbound: bool) -> str | None:
        """Return why a peer may not have a connection, or one more; None if it may."""
        if not self._admits(peer_id):
            return "peer is not admitted"
        if not is_inbound:
            return None
        if self._number_of(peer_id) >= self.connection_config.max_connections_per_peer:
            return "the peer has enough connections"
        return None

    def _crowding(self, host: str) -> ID | None:
        """Return the stranger that makes room for a peer at another host; None if there is none.

        It is the newest of the network (IPv4 /24, IPv6 /48) that has most places, at least two more than that
        of the host, so that no two networks take a place from each other in turns.
        """
        sites = {
            peer: site_of(_host_of(connections[0].muxed_conn))
            for peer, connections in self.connections.items()
            if connections
            and not connections[0].muxed_conn.is_initiator
            and str(peer) not in self._vouched
            and peer not in self._leaving
        }
        counts = Counter(sites.values())
        [(fullest, count)] = counts.most_common(1) or [("", 0)]
        own = site_of(host)
        entering = sum(site == own for _, site in self._registering)
        if count < counts[own] + entering + 2:
            return None
        return [peer for peer, site in sites.items() if site == fullest][-1]

    async def _give_up(self, peer: ID) -> None:
        self._leaving.add(peer)
        try:
            await self.close_peer(peer)
        finally:
            self._leaving.discard(peer)

    def _number_of(self, peer_id: str) -> int:
        """Return how many connections a peer has here or is opening."""
        entering = sum(peer == peer_id for peer, _ in self._registering)
        return len(self.get_connections(ID.from_base58(peer_id))) + entering

    def _is_one_stranger_too_many(self, peer_id: str) -> bool:
        """Whether all places for the kind of the connecting peer are taken; peers with earned trust always
        have one.

        Bonded peers may take half of the reserved places, so that bonds cannot buy all of them.
        """
        if self._vouched.has_earned(peer_id):
            return False
        came = {
            str(peer)
            for peer, connections in self.connections.items()
            if any(not each.muxed_conn.is_initiator for each in connections)
        } | {peer for peer, _ in self._registering}
        came -= {str(peer) for peer in self._leaving}
        without_trust = len(came) - self._vouched.earned_among(came)
        if peer_id in self._vouched:
            return without_trust >= self._max_without_trust
        return without_trust - self._vouched.bonded_among(came) >= self._max_strangers
