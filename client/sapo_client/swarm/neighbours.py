"""Discovery of nodes of the swarm in the local network by zeroconf (mDNS).

zeroconf runs in its own threads; these only pass names, which a task here looks up one at a time. libp2p's
own mDNS discovery is not used: it writes into the peer store from other threads, keeps everything that is
announced, and determines the machine's address by a connection to a public one.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

import trio
from zeroconf import Error, IPVersion, ServiceInfo, ServiceListener, Zeroconf

from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.nearby import (
    for_neighbours,
    hosts_of_this_machine,
    parse_text,
    service_type,
    to_text,
)

_LOG = logging.getLogger(__name__)

SOURCE: Final = "mdns"
"""Stands in place of the sender's IP address, which is not known for certain."""

LOOK_SECONDS: Final = 30.0
"""Interval of checking this machine's addresses, and of reporting found nodes again, which may be
forgotten."""

_MAX_FOUND: Final = 256
_LOOKUP_MILLISECONDS: Final = 1000
_LOOKUPS: Final = 3
"""Attempts to look up a name, since packets may be lost; a name without a node takes a second."""


class Neighbours:
    """Service that announces this node in the local network and reports others.

    Args:
        swarm_id: in hexadecimal digits.
        listening: returns the addresses at which this node listens.
        tell: called with the addresses of a found node, and their source.
    """

    def __init__(
        self,
        swarm_id: str,
        listening: Callable[[], Iterable[PeerAddress]],
        tell: Callable[[Iterable[PeerAddress], str], None],
    ) -> None:
        self._swarm_id = swarm_id
        self._type = service_type(swarm_id)
        self._name = f"{secrets.token_hex(16)}.{self._type}"  # random, so that nobody can take it first
        self._listening = listening
        self._tell = tell
        self._found: OrderedDict[str, tuple[PeerAddress, ...]] = OrderedDict()
        self._announced: OrderedDict[str, int] = OrderedDict()  # lookups left; 0: it went
        self._wake = trio.Event()
        self._problem = ""
        self._scope = trio.CancelScope()

    @property
    def found(self) -> frozenset[str]:
        """The ids of the peers that are announced in the local network now."""
        return frozenset(address.peer_id for addresses in self._found.values() for address in addresses)

    async def run(self) -> None:
        """Announce and listen until stopped; restart when the addresses of this machine change."""
        with self._scope:
            while True:
                try:
                    if own := for_neighbours(self._listening()):
                        await self._take_part(own)
                except (OSError, Error) as error:
                    if self._problem != (problem := str(error) or repr(error)):
                        _LOG.warning("no nodes can be found in the local network: %s", problem)
                    self._problem = problem
                self._found.clear()
                await trio.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Announce no more."""
        self._scope.cancel()

    async def _take_part(self, own: tuple[PeerAddress, ...]) -> None:
        """Announce these addresses, and look up others' announcements, until this machine's addresses change.

        Raises:
            OSError: multicast is not possible here.
            zeroconf.Error: the service cannot be announced.
        """
        token = trio.lowlevel.current_trio_token()

        def hear(name: str, present: bool) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(self._hear, name, present)

        network = await trio.to_thread.run_sync(_open, [address.host for address in own])
        try:
            await trio.to_thread.run_sync(self._announce, network, own)
            await trio.to_thread.run_sync(_browse, network, self._type, hear)
            self._problem = ""
            while for_neighbours(self._listening()) == own:
                await self._look_up(network, own[0].peer_id)
                for addresses in self._found.values():
                    self._tell(addresses, SOURCE)
                with trio.move_on_after(LOOK_SECONDS):
                    await self._wake.wait()
        finally:
            with trio.CancelScope(shield=True):  # withdraws the announcement within a second
                await trio.to_thread.run_sync(network.close)

    def _announce(self, network: Zeroconf, own: tuple[PeerAddress, ...]) -> None:
        info = ServiceInfo(
            self._type,
            self._name,
            port=own[0].port,
            parsed_addresses=sorted({address.host for address in own}),
            properties=to_text(self._swarm_id, own),
            server=f"{self._name.partition('.')[0]}.local.",
        )
        network.register_service(info, cooperating_responders=True)  # the name is nobody else's

    def _hear(self, name: str, present: bool) -> None:
        """Record that a name was added, changed or removed; the oldest of too many is dropped."""
        if name == self._name:
            return
        self._announced[name] = _LOOKUPS if present else 0
        self._announced.move_to_end(name)
        if len(self._announced) > _MAX_FOUND:
            self._announced.popitem(last=False)
        self._wake.set()

    async def _look_up(self, network: Zeroconf, own_peer_id: str) -> None:
        """Look up the addresses of announced names; a name without an answer is looked up again."""
        self._wake = trio.Event()
        announced, self._announced = self._announced, OrderedDict()
        for name, lookups in announced.items():
            if not lookups:
                self._found.pop(name, None)
                continue
            addresses = await trio.to_thread.run_sync(_addresses_of, network, self._swarm_id, name)
            if addresses is None:
                if lookups > 1:
                    self._announced.setdefault(name, lookups - 1)  # what came meanwhile is newer
                continue
            self._found.pop(name, None)
            if addresses and addresses[0].peer_id != own_peer_id:
                self._found[name] = addresses
            if len(self._found) > _MAX_FOUND:
                self._found.popitem(last=False)


def look_around(swarm_id: str, seconds: float) -> frozenset[str]:
    """Return the ids of the peers of a swarm that are announced in the local network; takes that long.

    Raises:
        OSError: multicast is not possible here.
        zeroconf.Error: zeroconf does not work here.
    """
    network = _open(hosts_of_this_machine())
    names: SimpleQueue[str] = SimpleQueue()
    found: set[str] = set()
    try:
        _browse(network, service_type(swarm_id), lambda name, _present: names.put(name))
        end_seconds = time.monotonic() + seconds
        while (left := end_seconds - time.monotonic()) > 0:
            with suppress(Empty):
                name = names.get(timeout=left)
                if (addresses := _addresses_of(network, swarm_id, name)) is None:
                    names.put(name)  # the question or the answer was lost: ask again while there is time
                else:
                    found.update(address.peer_id for address in addresses)
    finally:
        network.close()
    return frozenset(found)


def _open(hosts: Iterable[str]) -> Zeroconf:
    """Return zeroconf on the interfaces of these IP addresses; its own packets are IPv4's."""
    interfaces = [host for host in hosts if ":" not in host]
    if not interfaces:
        raise OSError("this machine has no IPv4 address in a network")
    return Zeroconf(interfaces=interfaces, ip_version=IPVersion.V4Only)


def _browse(network: Zeroconf, kind: str, hear: Callable[[str, bool], None]) -> None:
    """Pass every name of a type of service that comes or changes (True) or goes (False); in a thread."""
    network.add_service_listener(kind, _Listener(hear))


class _Listener(ServiceListener):
    """Passes names on."""

    def __init__(self, hear: Callable[[str, bool], None]) -> None:
        self._hear = hear

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Pass a new name."""
        self._hear(name, True)

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Pass a name whose record changed."""
        self._hear(name, True)

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Pass a name that went."""
        self._hear(name, False)


def _addresses_of(network: Zeroconf, swarm_id: str, name: str) -> tuple[PeerAddress, ...] | None:
    """Return the addresses that a node announces under a name; None if it does not answer in time."""
    try:
        info = ServiceInfo(service_type(swarm_id), name)
        answered = info.request(network, _LOOKUP_MILLISECONDS)
    except Error as error:
        _LOG.debug("%s cannot be looked up: %r", name, error)
        return ()
    return parse_text(swarm_id, info.properties) if answered else None
