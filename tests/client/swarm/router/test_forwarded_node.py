"""Real nodes: a router forwards a port to one of them, and peers connect through it."""

from __future__ import annotations

from typing import Any

import trio
from support.igd_router import HOST, IgdRouter
from support.nodes import PATIENCE_SECONDS

from sapo_client.swarm.reachability import Reachability
from sapo_client.swarm.router.answers import RouterState, RouterView
from sapo_client.swarm.router.calls import CALL_SECONDS, UpnpRouters
from sapo_client.swarm.router.ssdp import SearchLimits

EVERYWHERE = ("/ip4/0.0.0.0/tcp/0",)


def upnp(router: IgdRouter) -> UpnpRouters:
    return UpnpRouters(SearchLimits(HOST, router.ssdp_port, seconds=60, settle_seconds=0.5), CALL_SECONDS * 6)


async def ask_until_known(transport: Any) -> None:
    """Ask peers again whether they reach a node, as long as one of them did not say: on a busy machine."""
    with trio.fail_after(PATIENCE_SECONDS):
        while transport.reachability() is Reachability.UNKNOWN:
            await transport._dial_back.ask_next()


async def test_peers_try_the_routers_port_and_it_is_announced_after_two_connections(swarm: Any) -> None:
    async with IgdRouter().running() as router:
        boot, other = await swarm.start_members(2)
        node = await swarm.start(
            3, listen=EVERYWHERE, bootstrap=boot.transport.addresses, routers=upnp(router)
        )
        members = [boot, other, node]
        await swarm.wait_until_connected(members)
        transport = node.transport
        inside = int(transport.addresses[0].split("/")[4])
        router.taken = frozenset({inside})
        assert transport.router() == RouterView(RouterState.WAITING)
        await transport._mapper.ask()
        port = transport.router().port
        assert transport.router() == RouterView(RouterState.MAPPED, HOST, port, "203.0.113.7")
        assert port not in {None, inside}
        for member in (boot, other):
            if member.peer_id not in transport._discovery.chosen():
                await transport.connect(member.transport.addresses[0])
            await transport._dial_back.ask_next()
        await ask_until_known(transport)
        mapped = f"/ip4/{HOST}/tcp/{port}/p2p/{node.peer_id}"
        assert (transport.reachability(), transport.reached_at()) == (Reachability.REACHABLE, (mapped,))
        stranger = await swarm.start(4, bootstrap=(mapped,))
        await swarm.wait_until_connected([*members, stranger])
        told = {str(address) for address in transport._discovery._told()}
        assert mapped in told
        await node.stop()
        assert router.mappings == {}
    assert swarm.bugs == []


async def test_a_lying_router_is_detected_and_its_port_is_not_announced(swarm: Any) -> None:
    async with IgdRouter(forwards=False, external_host="8.8.8.8").running() as router:
        boot, other = await swarm.start_members(2)
        node = await swarm.start(
            3, listen=EVERYWHERE, bootstrap=boot.transport.addresses, routers=upnp(router)
        )
        await swarm.wait_until_connected([boot, other, node])
        transport = node.transport
        router.taken = frozenset({int(transport.addresses[0].split("/")[4])})
        await transport._mapper.ask()
        for member in (boot, other):
            if member.peer_id not in transport._discovery.chosen():
                await transport.connect(member.transport.addresses[0])
            await transport._dial_back.ask_next()
        await ask_until_known(transport)
        assert transport.reachability() is Reachability.UNREACHABLE
        assert transport.reached_at() == ()
        assert not any("8.8.8.8" in str(address) for address in transport._discovery._told())


async def test_a_node_that_announces_addresses_asks_no_router(swarm: Any) -> None:
    async with IgdRouter().running() as router:
        announced = "/ip4/203.0.113.9/tcp/4001/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"
        node = await swarm.start(1, listen=EVERYWHERE, announce=(announced,), routers=upnp(router))
        assert node.transport.router() is None
        assert router.searches == 0
