"""When a router is asked, which router, and the life of its port mapping: real routers on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import trio
from support.igd_router import HOST, IgdRouter

from sapo_client.swarm.addresses import PeerAddress, parse_address
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.reachability import Reachability
from sapo_client.swarm.router.answers import RouterState, RouterView
from sapo_client.swarm.router.calls import CALL_SECONDS, UpnpRouters
from sapo_client.swarm.router.mapper import AGAIN_SECONDS, PATIENCE_SECONDS, PortMapper, forwardable
from sapo_client.swarm.router.ssdp import SearchLimits

PEER = peer_id_from_key(bytes([1]) * 32)
INSIDE = 4001


def address(host: str) -> PeerAddress:
    found = parse_address(f"/ip{6 if ':' in host else 4}/{host}/tcp/{INSIDE}/p2p/{PEER}")
    assert found is not None
    return found


class Home:
    """A node's side of a home network: what peers find is set by the test."""

    def __init__(self, router: IgdRouter) -> None:
        limits = SearchLimits(HOST, router.ssdp_port, seconds=60, settle_seconds=0.5)
        self.state = Reachability.UNKNOWN
        self.changes = 0
        self.mapper = PortMapper(
            UpnpRouters(limits, CALL_SECONDS * 6),
            lambda: (address("0.0.0.0"),),
            lambda: self.state,
            self.change,
        )

    def change(self) -> None:
        self.changes += 1
        self.state = Reachability.UNKNOWN


@asynccontextmanager
async def home(router: IgdRouter) -> AsyncIterator[Home]:
    async with router.running():
        yield Home(router)


MAPPED = RouterView(RouterState.MAPPED, HOST, INSIDE, "203.0.113.7")


def test_a_router_forwards_to_ipv4_addresses_of_a_network() -> None:
    inside, everywhere, outside, here, six = map(
        address, ("192.168.1.5", "0.0.0.0", "8.8.8.8", "127.0.0.1", "2001:db8::1")
    )
    assert forwardable([here, outside, six, inside, everywhere]) == inside
    assert forwardable([everywhere, inside]) == everywhere
    assert forwardable([here, outside, six]) is None


async def test_a_router_is_asked_when_peers_cannot_connect_or_none_has_tried() -> None:
    async with home(IgdRouter(forwards=False)) as node:
        mapper, long = node.mapper, PATIENCE_SECONDS
        by_state = {}
        for node.state in Reachability:
            by_state[node.state] = [mapper.is_due(up, trio.current_time()) for up in (0, long - 1, long)]
        assert by_state == {
            Reachability.UNKNOWN: [False, False, True],
            Reachability.REACHABLE: [False, False, False],
            Reachability.UNREACHABLE: [True, True, True],
        }


async def test_a_port_is_renewed_before_its_lease_ends_and_given_back_at_the_end() -> None:
    router = IgdRouter(forwards=False)
    async with home(router) as node:
        mapper = node.mapper
        await mapper.ask()
        asked_seconds = trio.current_time()
        assert (mapper.view, node.changes, router.searches) == (MAPPED, 1, 2)
        node.state = Reachability.REACHABLE
        assert not mapper.is_due(0, asked_seconds)
        assert mapper.is_due(0, asked_seconds + AGAIN_SECONDS)
        await mapper.ask()
        assert (mapper.view, node.changes, router.searches) == (MAPPED, 1, 2)
        assert router.requests.count("AddPortMapping") == 2
        await mapper.stop()
        assert router.mappings == {}


async def test_a_port_without_a_lease_is_requested_again_if_no_peer_connects() -> None:
    async with home(IgdRouter(forwards=False, only_for_ever=True)) as node:
        await node.mapper.ask()
        later = trio.current_time() + AGAIN_SECONDS
        due = {}
        for node.state in Reachability:
            due[node.state] = node.mapper.is_due(later, later)
        assert due == {
            Reachability.UNKNOWN: False,
            Reachability.REACHABLE: False,
            Reachability.UNREACHABLE: True,
        }


async def test_a_router_whose_port_is_not_reachable_is_replaced_by_another() -> None:
    liar = IgdRouter(forwards=False)
    async with home(liar) as node, IgdRouter(forwards=False).running("127.0.0.2") as honest:
        await node.mapper.ask()
        assert node.mapper.view.host == HOST
        node.state = Reachability.UNREACHABLE
        liar.others = (honest,)
        await node.mapper.ask()
        assert node.mapper.view == replace(MAPPED, host="127.0.0.2")
        assert (liar.mappings, honest.mappings) == ({}, {INSIDE: ("127.0.0.1", INSIDE, 3600)})
        assert node.changes == 3
        node.state = Reachability.UNREACHABLE
        await node.mapper.ask()
        assert node.mapper.view.state is RouterState.MAPPED


async def test_a_refusal_is_reported_and_the_request_repeated_later() -> None:
    async with home(IgdRouter(error=606)) as node:
        node.state = Reachability.UNREACHABLE
        await node.mapper.ask()
        assert node.mapper.view == RouterView(RouterState.REFUSED, HOST, detail="Action not authorized")
        now_seconds = trio.current_time()
        due = [node.mapper.is_due(PATIENCE_SECONDS, now_seconds + wait) for wait in (0, AGAIN_SECONDS)]
        assert due == [False, True]
        await node.mapper.stop()
        assert node.changes == 0
