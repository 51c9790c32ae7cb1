"""The transport over libp2p, composed of the parts of this package."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import trio
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.peer.id import ID
from libp2p.tools.anyio_service import background_trio_service

from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress, Scope, listens_beyond_loopback, parse_address
from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.intake import Intake
from sapo_client.swarm.limits import DialLimits, TransportLimits
from sapo_client.swarm.neighbours import Neighbours
from sapo_client.swarm.p2p.dial_back import DialBack
from sapo_client.swarm.p2p.discovery import Discovery
from sapo_client.swarm.p2p.gossip import GossipService
from sapo_client.swarm.p2p.host import Host, build_host, multiaddr
from sapo_client.swarm.p2p.listen_ports import keep_ports, with_last_ports
from sapo_client.swarm.p2p.mesh import Mesh
from sapo_client.swarm.p2p.notifee import ConnectionNotifee
from sapo_client.swarm.p2p.requests import Requests
from sapo_client.swarm.p2p.score_bridge import ScoreBridge
from sapo_client.swarm.peer_score import PeerScores, Severity
from sapo_client.swarm.reachability import Reachability
from sapo_client.swarm.relays import NOTHING_SHORT, Shortage
from sapo_client.swarm.router.answers import RouterView
from sapo_client.swarm.router.calls import Routers
from sapo_client.swarm.router.mapper import PortMapper
from sapo_client.swarm.transport import (
    AuthorOf,
    BugReport,
    Direction,
    FoundPeer,
    Handler,
    PeerInfo,
    TransportError,
    Validator,
)
from sapo_client.swarm.vouched import VouchedPeers

if TYPE_CHECKING:
    from trio_typing import TaskStatus


_HANG_UP_SECONDS: Final = 2.0  # closing takes 0.2 s; no longer wait for a peer that does not respond
_GIVE_BACK_SECONDS: Final = 3.0  # a router that does not answer by then forgets the port after an hour


class Libp2pTransport:
    """Connection of one node to a libp2p swarm.

    `seed` is the 32-byte Ed25519 seed of the node key. `listen` are multiaddrs without peer id;
    `announce` and `bootstrap` are full ones. With `mdns_swarm`, a swarm's id in hexadecimal digits, nodes of
    that swarm are found in the local network, unless this one listens on loopback alone. One of `routers` is
    asked to forward a port while peers cannot connect, unless addresses are announced. With `port_file`, port
    0 is that of the last start if it is free. Subscribe and serve before `run` where possible: peers then
    learn of all topics and protocols at once.
    """

    def __init__(
        self,
        seed: bytes,
        *,
        on_bug: BugReport,
        listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",),
        announce: tuple[str, ...] = (),
        bootstrap: tuple[str, ...] = (),
        peer_cache: Path | None = None,
        port_file: Path | None = None,
        mdns_swarm: str | None = None,
        routers: Routers | None = None,
        limits: TransportLimits | None = None,
        dial: DialLimits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._limits = limits or TransportLimits()
        dial = dial or DialLimits()
        self._listen, self._port_file = listen, port_file
        self._announce = tuple(require_address(text) for text in announce)
        self._counters = TransportCounters()
        self._discipline = Discipline(
            PeerScores(self._limits.score), self._counters, self._drop_peer, self._limits.score
        )
        intake = self._intake = Intake(self._limits, self._discipline, self._counters, on_bug)
        self._vouched = VouchedPeers()
        self._host = self._build_host(seed, dial)
        self.peer_id = str(self._host.get_id())
        self._mesh = Mesh(self._counters, ScoreBridge(self._discipline), intake.knows, intake.author_of)
        self._gossip = GossipService(
            host=self._host,
            router=self._mesh,
            intake=self._intake,
            discipline=self._discipline,
            counters=self._counters,
            limits=self._limits,
        )
        self._requests = Requests(
            host=self._host,
            limits=self._limits,
            discipline=self._discipline,
            counters=self._counters,
            on_bug=on_bug,
        )
        self._discovery = self._build_discovery(bootstrap, dial, rng or random.Random(), peer_cache)
        self._dial_back = DialBack(
            self._requests,
            connected=self._discovery.connected,
            chosen=self._discovery.chosen,
            remote_host=self._discovery.remote_host,
            own_addresses=self._discovery.own_addresses,
            announced=self._announce,
            forwarded=lambda: None if self._mapper is None else self._mapper.view.port,
        )
        self._discovery.reached_at = lambda: self._dial_back.reached_at(self.peer_id)
        self._mapper = None if routers is None or announce else self._build_mapper(routers)
        self._neighbours = None if mdns_swarm is None else self._build_neighbours(mdns_swarm)
        self._host.swarm.register_notifee(ConnectionNotifee(self._discovery.arrived, self._left))
        self._listening = True
        self._nursery: trio.Nursery | None = None

    def _build_discovery(
        self, bootstrap: tuple[str, ...], dial: DialLimits, rng: random.Random, cache: Path | None
    ) -> Discovery:
        book = AddressBook(self.peer_id, dial, rng, self._vouched)
        for text in bootstrap:
            book.add_bootstrap(require_address(text))
        return Discovery(
            host=self._host,
            requests=self._requests,
            book=book,
            limits=dial,
            counters=self._counters,
            announced=self._announce,
            cache=cache,
        )

    def _build_neighbours(self, swarm_id: str) -> Neighbours | None:
        if not listens_beyond_loopback(self._listen):
            return None
        return Neighbours(swarm_id, self._discovery.listening, self._discovery.learn_of_neighbours)

    def _build_mapper(self, routers: Routers) -> PortMapper:
        return PortMapper(routers, self._discovery.listening, self.reachability, self._dial_back.begin_anew)

    def _build_host(self, seed: bytes, dial: DialLimits) -> Host:
        return build_host(
            seed,
            limits=self._limits,
            dial=dial,
            admits=self._admits,
            vouched=self._vouched,
            blame=self._blame_malformed,
            report=self._count_broken,
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the announced addresses, or those we listen on."""
        if self._announce:
            return tuple(str(address) for address in self._announce)
        return tuple(str(address) for address in self._host.listening())

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, dial and forward until cancelled; raise `TransportError` if it cannot listen.

        The library does not close its connections when it is cancelled, and peers would consider the node
        connected until their next request. So the library runs in a shielded scope: its connections are
        closed first, then it is cancelled.
        """
        library = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_library, library, nursery.cancel_scope, task_status)
            try:
                await trio.sleep(math.inf)
            finally:
                await self._hang_up()
                library.cancel()
        if not self._listening:  # raised here: inside, nurseries would wrap it in a group
            raise TransportError(f"cannot listen on {', '.join(self._listen)}")

    async def _run_library(
        self, library: trio.CancelScope, caller: trio.CancelScope, task_status: TaskStatus[None]
    ) -> None:
        listen = [multiaddr(text) for text in with_last_ports(self._listen, self._port_file)]
        with library:
            async with self._host.run(listen):
                self._listening = len(self._host.swarm.listeners) == len(listen)
                if self._listening:
                    if self._port_file is not None:
                        keep_ports(self._port_file, self._discovery.listening())
                    await self._serve(task_status)
        caller.cancel()

    async def _serve(self, task_status: TaskStatus[None]) -> None:
        async with (
            background_trio_service(self._gossip),
            background_trio_service(self._mesh),
            trio.open_nursery() as self._nursery,
        ):
            await self._gossip.wait_until_ready()
            for topic in self._intake.topics:
                await self._gossip.subscribe(topic)
            self._nursery.start_soon(self._discovery.run)
            self._nursery.start_soon(self._dial_back.run)
            if self._neighbours is not None:
                self._nursery.start_soon(self._neighbours.run)
            if self._mapper is not None:
                self._nursery.start_soon(self._mapper.run)
            task_status.started()

    async def _hang_up(self) -> None:
        """Close connections, so that peers notice at once; give the forwarded port back; listen no longer."""
        with trio.CancelScope(shield=True), trio.move_on_after(_HANG_UP_SECONDS):
            self._discovery.stop()
            self._dial_back.stop()
            if self._neighbours is not None:
                self._neighbours.stop()
            async with trio.open_nursery() as nursery:
                for peer_id in self._discovery.connected():
                    nursery.start_soon(self._disconnect, peer_id)
        if self._mapper is not None:
            with trio.CancelScope(shield=True), trio.move_on_after(_GIVE_BACK_SECONDS):
                await self._mapper.stop()
        with trio.CancelScope(shield=True), trio.move_on_after(_HANG_UP_SECONDS):
            await self._host.swarm.stop_listening()

    async def publish(self, topic: str, data: bytes) -> int:
        """Send a message; return the number of peers that it was queued for."""
        await trio.lowlevel.checkpoint()
        if len(data) > self._limits.max_message_bytes:
            raise ValueError(f"message of {len(data)} bytes, {self._limits.max_message_bytes} allowed")
        self._counters.published += 1
        self._intake.remember_own(topic, data, trio.current_time())
        return self._gossip.send(topic, data)

    def relay(self, topic: str, data: bytes, came_from: str) -> None:
        """Forward a message that was ignored when it came, and is accepted now."""
        if self._intake.accept_late(topic, data, trio.current_time()):
            self._gossip.relay(topic, data, came_from)

    def subscribe(self, topic: str, validator: Validator, author_of: AuthorOf | None = None) -> None:
        """Pass each new message on `topic` to `validator`; forward those it accepts, authors in turns."""
        self._intake.subscribe(topic, validator, author_of)
        if self._nursery is not None:
            self._nursery.start_soon(self._gossip.subscribe, topic)

    def unsubscribe(self, topic: str) -> None:
        """Leave a topic, and announce that to peers."""
        self._intake.unsubscribe(topic)
        if self._nursery is not None:
            self._nursery.start_soon(self._gossip.unsubscribe, topic)

    def peers(self) -> tuple[PeerInfo, ...]:
        """Return the connected peers, ordered by peer id."""
        return tuple(self._describe(peer_id) for peer_id in sorted(self._discovery.connected()))

    def counters(self) -> Mapping[str, int]:
        """Return the counts by name."""
        return self._counters.snapshot()

    def score(self, peer_id: str) -> float:
        """Return the score of a peer, connected or not."""
        return self._discipline.scores.score(peer_id, trio.current_time())

    async def request(self, peer_id: str, protocol: str, payload: bytes, *, max_response_bytes: int) -> bytes:
        """Return the response of a connected peer, or raise `TransportError`."""
        return await self._requests.ask(peer_id, protocol, payload, max_response_bytes=max_response_bytes)

    def blame(self, peer_id: str) -> None:
        """Penalise the peer that sent a REJECT message on request."""
        self._intake.blame(peer_id, trio.current_time())

    def rate(self, ratings: Mapping[str, float]) -> None:
        """Replace the application's ratings of peers."""
        self._discipline.rate(ratings, trio.current_time())

    def vouch(self, earned: Iterable[str], bonded: Iterable[str] = ()) -> None:
        """Keep places for these peers, and dial them first."""
        self._vouched.replace(earned, bonded)

    def expect(self, quota_per_second: float, *, knows_all: bool = True) -> None:
        """Set each connection's rate limits from the quotas of all accounts on the subscribed topics."""
        self._gossip.expect(quota_per_second, knows_all=knows_all)

    def seek(
        self,
        found: Iterable[FoundPeer],
        short: Mapping[int, Shortage] = NOTHING_SHORT,
        own: Collection[int] = (),
    ) -> None:
        """Add the signed addresses of these peers, and dial some of the peers in addition to the usual
        ones."""
        self._discovery.seek(found, short, own)

    def reachability(self) -> Reachability:
        """Return whether peers can connect, by their last answers or their inbound connections."""
        return self._dial_back.state()

    def reached_at(self) -> tuple[str, ...]:
        """Return the addresses at which peers reached this node."""
        return tuple(map(str, self._dial_back.reached_at(self.peer_id)))

    def router(self) -> RouterView | None:
        """Return the state of the router's port mapping; None if it is not used."""
        return None if self._mapper is None else self._mapper.view

    def neighbours(self) -> int | None:
        """Return how many nodes are found in the local network; None if none are looked for."""
        return None if self._neighbours is None else len(self._neighbours.found)

    def take_floods(self) -> Mapping[str, int]:
        """Return the number of floods since the last call, by peer id."""
        return self._discipline.take_floods()

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer requests on `protocol`."""
        self._requests.serve(protocol, handler)

    async def connect(self, multiaddr: str) -> None:
        """Connect to the peer at a full multiaddr, or raise `TransportError`."""
        await self._discovery.dial(require_address(multiaddr), Scope.MACHINE)

    # Callbacks of the parts

    def _admits(self, peer_id: str) -> bool:
        return peer_id != self.peer_id and self._discipline.allows(peer_id, trio.current_time())

    def _blame_malformed(self, peer_id: str, _error: Exception) -> None:
        self._counters.malformed_frames += 1
        self._discipline.blame(peer_id, Severity.LOW, trio.current_time())
        self._drop_peer(peer_id)

    def _count_broken(self, _error: Exception) -> None:
        self._counters.broken_connections += 1

    def _left(self, peer_id: str) -> None:
        self._intake.forget_peer(peer_id)
        self._discovery.left(peer_id)

    def _drop_peer(self, peer_id: str) -> None:
        if self._nursery is not None and peer_id in self._discovery.connected():
            self._counters.disconnects += 1
            self._nursery.start_soon(self._disconnect, peer_id)

    async def _disconnect(self, peer_id: str) -> None:
        with ContainExceptions(self._count_broken):
            await self._host.disconnect(ID.from_base58(peer_id))

    def _describe(self, peer_id: str) -> PeerInfo:
        peer = ID.from_base58(peer_id)
        connection = cast(SwarmConn, self._host.swarm.get_connections(peer)[0])
        return PeerInfo(
            peer_id=peer_id,
            addresses=self._discovery.addresses_of(peer_id),
            connected_since_seconds=max(0.0, time.time() - connection._created_at),
            direction=Direction.OUTBOUND if connection.muxed_conn.is_initiator else Direction.INBOUND,
            in_mesh=any(peer in members for members in self._mesh.mesh.values()),
            score=self.score(peer_id),
            received=self._intake.received_by_peer[peer_id],
            rejected=self._intake.rejected_by_peer[peer_id],
            remote_host=self._discovery.remote_host(peer_id),
        )


def require_address(text: str) -> PeerAddress:
    """Return the parsed full multiaddr, or raise `TransportError`."""
    address = parse_address(text)
    if address is None:
        raise TransportError(f"{text} is not a multiaddr like /ip4/203.0.113.7/tcp/4001/p2p/12D3KooW...")
    return address
