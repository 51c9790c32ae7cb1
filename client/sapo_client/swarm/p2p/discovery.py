"""Discovery of peers: a dialler and a peer exchange.

The dialler reads the address book twice a second and dials the due peers. The exchange asks the peer that was
asked longest ago for its known addresses: often while connections are new, rarely later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import cast

import trio
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr

from sapo_client.swarm import peer_cache, peer_exchange
from sapo_client.swarm.address_book import AddressBook
from sapo_client.swarm.addresses import PeerAddress, Scope, parse_address
from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.p2p.host import Host, multiaddr
from sapo_client.swarm.p2p.muxer import BoundedYamux
from sapo_client.swarm.p2p.peer_names import resolved
from sapo_client.swarm.p2p.requests import Requests
from sapo_client.swarm.relays import NOTHING_SHORT, Shortage
from sapo_client.swarm.sought import SoughtFor
from sapo_client.swarm.transport import FoundPeer, TransportError

_LOG = logging.getLogger(__name__)


class Discovery:
    """Dialler and peer exchange of one node.

    Attributes:
        reached_at: returns the addresses at which peers reached this node; set after construction.
    """

    def __init__(
        self,
        host: Host,
        requests: Requests,
        book: AddressBook,
        limits: DialLimits,
        counters: TransportCounters,
        announced: tuple[PeerAddress, ...] = (),
        cache: Path | None = None,
    ) -> None:
        self._host = host
        self._requests = requests
        self._book = book
        self._limits = limits
        self._counters = counters
        self._announced = announced
        self._cache = cache
        self.reached_at: Callable[[], tuple[PeerAddress, ...]] = lambda: ()
        self._asked_seconds: dict[str, float] = {}
        self._interval_seconds = limits.first_exchange_seconds
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        requests.serve(peer_exchange.PROTOCOL, self._answer)
        if cache is not None:
            book.learn_first_hand(peer_cache.load(cache))

    async def run(self) -> None:
        """Dial and exchange until stopped."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._dial_due, nursery)
                nursery.start_soon(self._exchange_peers)

    def stop(self) -> None:
        """Stop dialling, and save the first-hand addresses.

        Hearsay is not saved, since saved addresses count as first-hand at the next start.
        """
        self._scope.cancel()
        if self._cache is not None:
            met = self._book.addresses(first_hand=True)
            peer_cache.save(self._cache, [*self._known_addresses(), *met])

    def connected(self) -> tuple[str, ...]:
        """Return the ids of connected peers."""
        return tuple(str(peer) for peer in self._host.swarm.connections)

    def chosen(self) -> tuple[str, ...]:
        """Return the ids of peers to which this node opened a connection."""
        return tuple(
            str(peer)
            for peer, connections in self._host.swarm.connections.items()
            if any(connection.muxed_conn.is_initiator for connection in connections)
        )

    def addresses_of(self, peer_id: str) -> tuple[str, ...]:
        """Return the known addresses of a peer."""
        return tuple(str(address) for address in self._book.addresses_of(peer_id))

    def arrived(self, peer_id: str) -> None:
        """Record that a connection opened, and exchange peers again soon."""
        _LOG.info("connected to %s", peer_id)
        self._book.reached(peer_id, trio.current_time())
        self._interval_seconds = self._limits.first_exchange_seconds
        self._wake.set()

    def left(self, peer_id: str) -> None:
        """Record that a peer's last connection ended."""
        _LOG.info("lost the connection to %s", peer_id)
        self._asked_seconds.pop(peer_id, None)
        self._book.lost(peer_id, trio.current_time())

    # Dialling

    async def _dial_due(self, nursery: trio.Nursery) -> None:
        while True:
            now_seconds = trio.current_time()
            leaving = self._book.giving_way(self.connected(), self.chosen(), now_seconds)
            if leaving is not None:
                _LOG.info("%s is replaced by another member of its island", leaving)
                await self._host.disconnect(ID.from_base58(leaving))
            for address in self._book.due(self.connected(), self.chosen(), now_seconds):
                self._book.dialling(address.peer_id, now_seconds)
                nursery.start_soon(self._try_to_dial, address)
            await trio.sleep(self._limits.tick_seconds)

    async def _try_to_dial(self, address: PeerAddress) -> None:
        try:
            await self.dial(address, self._book.source_scope(address.peer_id))
        except TransportError as error:
            _LOG.debug("%s: %r", error, error.__cause__)
            self._book.failed(address.peer_id, trio.current_time())
        else:
            self._book.learn_first_hand([address], self.remote_host(address.peer_id))
            if address.peer_id in self.chosen():  # it may have left again
                self._book.chose(address, trio.current_time())

    async def dial(self, address: PeerAddress, source: Scope) -> None:
        """Connect to a peer.

        Args:
            source: region of whoever told the address; its name may lead into that region.

        Raises:
            TransportError: it cannot be reached.
        """
        self._counters.dials += 1
        swarm = self._host.swarm
        swarm._negative_peer_cache.evict(address.peer_id)  # stock refuses a failed peer for a minute
        errors: list[Exception] = []
        with ContainExceptions(errors.append), trio.fail_after(self._limits.dial_timeout_seconds):
            found = [multiaddr(str(each)) for each in await resolved(address, source)]
            peers = [info_from_p2p_addr(each) for each in found]
            swarm.peerstore.clear_addrs(peers[0].peer_id)
            await self._host.connect(PeerInfo(peers[0].peer_id, [each.addrs[0] for each in peers]))
        if errors:
            self._counters.dials_failed += 1
            raise TransportError(f"cannot reach {address}") from errors[0]

    # Peer exchange

    async def _exchange_peers(self) -> None:
        while True:
            self._wake = trio.Event()
            with trio.move_on_after(self._interval_seconds):
                await self._wake.wait()
                await trio.sleep(self._limits.tick_seconds)  # new peers often arrive together
            peer_id = self._asked_longest_ago()
            if peer_id is not None:
                await self._exchange_with(peer_id)
            self._interval_seconds = min(self._interval_seconds * 2, self._limits.max_exchange_seconds)

    def _asked_longest_ago(self) -> str | None:
        return min(self.connected(), key=lambda peer_id: self._asked_seconds.get(peer_id, -1.0), default=None)

    async def _exchange_with(self, peer_id: str) -> None:
        self._asked_seconds[peer_id] = trio.current_time()
        host = self.remote_host(peer_id)
        if host is None:
            return  # it just left
        try:
            payload = await self._requests.ask(
                peer_id,
                peer_exchange.PROTOCOL,
                peer_exchange.encode(self._for(host, self._told())),
                max_response_bytes=peer_exchange.MAX_PAYLOAD_BYTES,
            )
        except TransportError:
            return  # it is busy, does not serve this protocol, or just left
        told = self._for(host, peer_exchange.decode(payload))
        self._book.learn_first_hand((address for address in told if address.peer_id == peer_id), host)
        self._book.learn((address for address in told if address.peer_id != peer_id), host)

    async def _answer(self, asker: str, payload: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        host = self.remote_host(asker)
        if host is None:
            return b""
        told = self._for(host, peer_exchange.decode(payload))
        own = (address.seen_from(host) for address in told if address.peer_id == asker)
        self._book.learn_first_hand(own, host)
        others = [address for address in self._known_addresses() if address.peer_id != asker]
        return peer_exchange.encode(self._for(host, [*self._told(), *others]))

    def _for(self, host: str, addresses: Iterable[PeerAddress]) -> list[PeerAddress]:
        """Return the addresses that mean the same host to this node and to a peer at `host`."""
        return [address for address in addresses if address.means_the_same(host)]

    def learn_of_neighbours(self, addresses: Iterable[PeerAddress], source: str) -> None:
        """Add addresses that were found in the local network as hearsay."""
        self._book.learn(addresses, source)

    def seek(
        self,
        found: Iterable[FoundPeer],
        short: Mapping[int, Shortage] = NOTHING_SHORT,
        own: Collection[int] = (),
    ) -> None:
        """Add signed addresses of peers that the application wants; some of them are dialled first."""
        sought = {}
        for peer in found:
            parsed = filter(None, map(parse_address, peer.addresses))
            signed = [address for address in parsed if address.peer_id == peer.peer_id]
            self._book.learn_signed(self._for(peer.source_host, signed), peer.source_host)
            sought[peer.peer_id] = SoughtFor(peer.islands, peer.source)
        self._book.seek(sought, short, own)

    def own_addresses(self) -> tuple[PeerAddress, ...]:
        """Return the announced addresses, or those at which this node listens."""
        return self._announced or self.listening()

    def _told(self) -> tuple[PeerAddress, ...]:
        """Return the own addresses, and that of a router's port once peers have come in through it.

        The newest address of a peer is dialled first, so that one is last.
        """
        own = self.own_addresses()
        if self._announced:
            return own
        ports = {address.port for address in own}
        return (*own, *(address for address in self.reached_at() if address.port not in ports))

    def listening(self) -> tuple[PeerAddress, ...]:
        """Return the addresses at which this node listens."""
        parsed = (parse_address(str(address)) for address in self._host.listening())
        return tuple(address for address in parsed if address is not None)

    def _known_addresses(self) -> Iterable[PeerAddress]:
        """Return one address of each connected peer, which proved to exist."""
        return [address for peer_id in self.connected() for address in self._book.addresses_of(peer_id)[:1]]

    def remote_host(self, peer_id: str) -> str | None:
        """Return the IP address at the other end of a peer's connection."""
        for connection in self._host.swarm.get_connections(ID.from_base58(peer_id)):
            remote = cast(BoundedYamux, connection.muxed_conn).get_remote_address()
            if remote is not None:
                return remote[0]
        return None
