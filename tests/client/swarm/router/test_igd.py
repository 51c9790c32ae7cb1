"""A real process requests a port from a real router on loopback, also from hostile routers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from support.igd_router import DESCRIPTION, HOST, SERVICE, IgdRouter, reply

from sapo_client.swarm.router.answers import MapReply, RouterState, RouterView
from sapo_client.swarm.router.calls import CALL_SECONDS, UpnpRouters
from sapo_client.swarm.router.ssdp import SearchLimits

PATIENT = SearchLimits(HOST, seconds=60, settle_seconds=0.5)
"""A search that waits as long as a loaded machine may need, and ends soon after the first answer."""
CALLS = CALL_SECONDS * 6
INSIDE = 4001


def routers(router: IgdRouter, call_seconds: float = CALLS) -> UpnpRouters:
    return UpnpRouters(replace(PATIENT, port=router.ssdp_port), call_seconds)


async def ask(router: IgdRouter, *, call_seconds: float = CALLS) -> MapReply:
    """Return what comes of asking the router that a search finds for its port 4001."""
    calls = routers(router, call_seconds)
    [url] = await calls.find()
    return await calls.map(url, "0.0.0.0", INSIDE, INSIDE)


def refused(detail: str) -> MapReply:
    return MapReply(RouterView(RouterState.REFUSED, HOST, detail=detail))


def unusable(detail: str) -> MapReply:
    return MapReply(RouterView(RouterState.UNUSABLE, HOST, detail=detail))


BROKEN = "its response is too long, too slow or not a router's"


async def test_a_port_is_forwarded_for_an_hour_and_given_back() -> None:
    async with IgdRouter(forwards=False).running() as router:
        assert await ask(router) == MapReply(
            RouterView(RouterState.MAPPED, HOST, INSIDE, "203.0.113.7"), lease_seconds=3600
        )
        assert router.mappings == {INSIDE: (HOST, INSIDE, 3600)}
        await routers(router).unmap(router.url, INSIDE)
        assert router.mappings == {}


async def test_without_support_for_leases_the_port_is_forwarded_permanently() -> None:
    async with IgdRouter(forwards=False, only_for_ever=True).running() as router:
        assert (await ask(router)).lease_seconds == 0
        assert router.mappings == {INSIDE: (HOST, INSIDE, 0)}


async def test_if_another_machine_uses_the_port_another_port_is_forwarded() -> None:
    async with IgdRouter(forwards=False, taken=frozenset({INSIDE})).running() as router:
        port = (await ask(router)).view.port
        assert port is not None
        assert port >= 20_000
        assert router.mappings == {port: (HOST, INSIDE, 3600)}


@pytest.mark.parametrize(
    ("code", "detail"),
    [(606, "Action not authorized"), (718, "ConflictInMappingEntry"), (899, "UnknownError")],
)
async def test_a_refusal_of_a_router_is_reported_with_its_reason(code: int, detail: str) -> None:
    async with IgdRouter(error=code).running() as router:
        assert await ask(router) == refused(detail)


@pytest.mark.parametrize(
    ("external", "host", "behind"),
    [
        ("10.0.0.2", "10.0.0.2", True),
        ("100.64.9.9", "100.64.9.9", True),
        ("8.8.8.8", "8.8.8.8", False),
        ("\x1b[2J8.8.8.8", None, False),
        ("9" * 5000, None, False),
    ],
)
async def test_the_external_address_is_an_address_or_none(
    external: str, host: str | None, behind: bool
) -> None:
    async with IgdRouter(forwards=False, external_host=external).running() as router:
        view = (await ask(router)).view
        assert view == RouterView(RouterState.MAPPED, HOST, INSIDE, host)
        assert view.is_behind_another is behind


async def test_a_url_that_leads_elsewhere_is_not_followed() -> None:
    async with IgdRouter().running() as victim:
        for url in (
            f"http://127.0.0.2:{victim.http_port}/root.xml",
            "http://169.254.169.254/latest",
            "file:///etc",
        ):
            async with IgdRouter(location=url).running() as router:
                quick = UpnpRouters(SearchLimits(HOST, router.ssdp_port, seconds=0.2))
                assert await quick.find() == ()
        assert victim.requests == []


async def test_a_service_on_another_host_is_not_queried() -> None:
    async with IgdRouter().running() as victim:
        elsewhere = f"http://127.0.0.2:{victim.http_port}/control"
        async with IgdRouter(control=elsewhere).running() as router:
            assert await ask(router) == unusable("its description names no service of its own")
        assert victim.requests == []


async def test_a_redirect_is_not_followed() -> None:
    async with IgdRouter().running() as victim:

        async def redirect(_router: IgdRouter, stream: trio.SocketStream) -> None:
            await reply(stream, "", status="302 Found", headers=f"Location: {victim.url}\r\n")

        async with IgdRouter(describe=redirect).running() as router:
            assert (await ask(router)).view.state is RouterState.UNUSABLE
        assert victim.requests == []


async def test_a_description_without_end_costs_64_mebibytes_of_another_process() -> None:
    sent = 0

    async def flood(_router: IgdRouter, stream: trio.SocketStream) -> None:
        nonlocal sent
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n\r\n<root>")
        while sent < 2**30:
            await stream.send_all(b"<a>" * 2**16)
            sent += 3 * 2**16

    async with IgdRouter(describe=flood).running() as router:
        assert (await ask(router)).view.state is RouterState.UNUSABLE
    assert sent < 2**28


async def test_a_body_with_an_enormous_announced_length_is_not_read() -> None:
    async def promise(_router: IgdRouter, stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2147483647\r\n\r\n<root>" + b" " * 4096)

    async with IgdRouter(describe=promise).running() as router:
        assert (await ask(router)).view.state is RouterState.UNUSABLE


async def test_entities_are_not_expanded() -> None:
    layers = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE root [<!ENTITY e0 "bomb">{layers}]>'
    text = DESCRIPTION.format(service=SERVICE, control="/&e11;").replace("<root", f"{bomb}<root", 1)

    async def explode(_router: IgdRouter, stream: trio.SocketStream) -> None:
        await reply(stream, text)

    async with IgdRouter(describe=explode, forwards=False).running() as router:
        assert (await ask(router)).view.state is RouterState.MAPPED
        assert {path for path in router.paths if "root.xml" not in path} == {"/&e11;"}


async def test_a_peer_that_never_answers_is_dropped() -> None:
    async def wait(_router: IgdRouter, stream: trio.SocketStream) -> None:
        await stream.receive_some(1)  # until the other side has given up

    async with IgdRouter(describe=wait).running() as router:
        assert await ask(router, call_seconds=0.5) == unusable(BROKEN)


async def test_without_a_router_none_is_found() -> None:
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as silent:
        await silent.bind((HOST, 0))
        quick = UpnpRouters(SearchLimits(HOST, silent.getsockname()[1], seconds=0.2))
        assert await quick.find() == ()
