"""Maintains a port mapping of the router while peers cannot connect otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import trio

from sapo_client.swarm.addresses import PeerAddress, Scope, scope_of
from sapo_client.swarm.reachability import Reachability
from sapo_client.swarm.router.answers import MapReply, RouterState, RouterView, host_of
from sapo_client.swarm.router.calls import Routers

_LOG = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 60.0
"""Delay after the start, in which peers may connect, so that no mapping is needed."""

LOOK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 900.0
"""Pause before a router is asked again that refused, was silent, or whose mapping does not work."""

_TELLING: Final = (RouterState.SILENT, RouterState.UNUSABLE, RouterState.REFUSED)
"""States without a mapping; with several routers, the order in which they are reported."""

_WAITING: Final = RouterView(RouterState.WAITING)
_SILENT: Final = RouterView(RouterState.SILENT)


def forwardable(listening: Iterable[PeerAddress]) -> PeerAddress | None:
    """Return the address to which a router can forward: one of IPv4 in a local network, or on all of them."""
    return next(
        (
            address
            for address in listening
            if address.kind == "ip4" and (address.unspecified or scope_of(address.host) is Scope.NETWORK)
        ),
        None,
    )


class PortMapper:
    """Keeps one port of one router forwarded to this node.

    Args:
        listening: returns the addresses at which this node listens.
        reachability: returns whether peers can connect, as they found at the address that is told now.
        changed: called when the port at which peers have to try changes.
    """

    def __init__(
        self,
        routers: Routers,
        listening: Callable[[], Iterable[PeerAddress]],
        reachability: Callable[[], Reachability],
        changed: Callable[[], None],
    ) -> None:
        self._routers = routers
        self._listening = listening
        self._reachability = reachability
        self._changed = changed
        self._url: str | None = None
        self._lease_seconds = 0
        self._asked_seconds: float | None = None
        self._useless: set[str | None] = set()
        self._scope = trio.CancelScope()
        self.view = _WAITING

    async def run(self) -> None:
        """Ask the router while that is needed, until stopped."""
        with self._scope:
            started_seconds = trio.current_time()
            while True:
                await trio.sleep(LOOK_SECONDS)
                now_seconds = trio.current_time()
                if self.is_due(now_seconds - started_seconds, now_seconds):
                    await self.ask()

    async def stop(self) -> None:
        """Ask no more, and give back what the router forwards."""
        self._scope.cancel()
        if self._url is not None and self.view.port is not None:
            await self._routers.unmap(self._url, self.view.port)

    def is_due(self, up_seconds: float, now_seconds: float) -> bool:
        """Return whether to ask a router now.

        Args:
            up_seconds: since the start.
            now_seconds: of the event loop's clock.
        """
        state = self._reachability()
        since_seconds = now_seconds - (self._asked_seconds or 0.0)
        if self.view.state is RouterState.MAPPED and self._lease_seconds:
            return since_seconds >= min(AGAIN_SECONDS, self._lease_seconds / 2)
        if self._asked_seconds is not None and since_seconds < AGAIN_SECONDS:
            return False
        if state is Reachability.UNKNOWN:
            return self.view.state is not RouterState.MAPPED and up_seconds >= PATIENCE_SECONDS
        return state is Reachability.UNREACHABLE

    async def ask(self) -> None:
        """Have a port forwarded, by the router that does already or by one that is found."""
        self._asked_seconds = trio.current_time()
        address = forwardable(self._listening())
        if address is None:
            return
        if await self._renew(address):
            return
        await self._give_up()
        await self._ask_all(address)

    async def _renew(self, address: PeerAddress) -> bool:
        """Renew the mapping, unless it does not work; return whether the router has renewed it."""
        url, port = self._url, self.view.port
        if url is None or port is None or self._reachability() is Reachability.UNREACHABLE:
            return False
        reply = await self._routers.map(url, address.host, address.port, port)
        if reply.view.state is not RouterState.MAPPED:
            return False
        self._take(url, reply)
        if reply.view.port != port:
            self._changed()
        return True

    async def _ask_all(self, address: PeerAddress) -> None:
        """Request a mapping from one router after another; those that failed before are asked last."""
        found = await self._routers.find()
        self._useless &= set(map(host_of, found))
        answers = [_SILENT]
        for url in sorted(found, key=lambda each: host_of(each) in self._useless):
            reply = await self._routers.map(url, address.host, address.port, address.port)
            if reply.view.state is RouterState.MAPPED:
                self._take(url, reply)
                self._changed()
                return
            answers.append(reply.view)
        self.view = max(answers, key=lambda view: _TELLING.index(view.state))

    def _take(self, url: str, reply: MapReply) -> None:
        self._url, self._lease_seconds = url, reply.lease_seconds
        if self.view != reply.view:
            _LOG.info("the router at %s forwards its port %s to this node", host_of(url), reply.view.port)
        self.view = reply.view

    async def _give_up(self) -> None:
        """Remove a mapping that does not work, and remember its router as unusable."""
        if self._url is None or self.view.port is None:
            return
        url, port, self.view = self._url, self.view.port, _WAITING
        self._url = None
        self._useless.add(host_of(url))
        self._changed()
        await self._routers.unmap(url, port)
