"""A router that speaks UPnP (SSDP over UDP, SOAP over HTTP) and forwards ports, and dishonest variants.

It runs on loopback in the test's own event loop. A port that it forwards is a listener that passes the bytes
of each connection on to the machine that asked for it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from trio_typing import TaskStatus

SERVICE = "urn:schemas-upnp-org:service:WANIPConnection:1"
HOST = "127.0.0.1"

DESCRIPTION = """<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0"><specVersion><major>1</major><minor>0</minor></specVersion>
<device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType>
<friendlyName>home</friendlyName><deviceList><device>
<deviceType>urn:schemas-upnp-org:device:WANDevice:1</deviceType><deviceList><device>
<deviceType>urn:schemas-upnp-org:device:WANConnectionDevice:1</deviceType><serviceList><service>
<serviceType>{service}</serviceType><serviceId>urn:upnp-org:serviceId:WANIPConn1</serviceId>
<controlURL>{control}</controlURL><eventSubURL>/event</eventSubURL><SCPDURL>/scpd</SCPDURL>
</service></serviceList></device></deviceList></device></deviceList></device></root>"""

Describe = Callable[["IgdRouter", trio.SocketStream], Awaitable[None]]


@dataclass
class IgdRouter:
    """One router on loopback.

    Attributes:
        external_host: the external address that it reports.
        error: UPnP error code of its response to a request to forward a port; none: it forwards.
        taken: external ports that another machine uses.
        only_for_ever: whether it supports permanent leases only.
        forwards: whether it forwards as it reports.
        control: URL in its description at which it is asked.
        describe: sends its description.
        location: URL in its answers to a search; none: its own.
        others: routers that answer a search too, each from its own address.
        requests: method and path, or name of the SOAP action, in order.
        paths: that were asked for.
    """

    external_host: str = "203.0.113.7"
    error: int | None = None
    taken: frozenset[int] = frozenset()
    only_for_ever: bool = False
    forwards: bool = True
    control: str = "/control"
    describe: Describe | None = None
    location: str | None = None
    others: tuple[IgdRouter, ...] = ()
    mappings: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    searches: int = 0
    host: str = HOST
    http_port: int = 0
    ssdp_port: int = 0
    _listeners: dict[int, trio.CancelScope] = field(default_factory=dict)
    _nursery: trio.Nursery | None = None
    _udp: trio.socket.SocketType | None = None

    @property
    def url(self) -> str:
        """The URL of its description."""
        return f"http://{self.host}:{self.http_port}/root.xml"

    @asynccontextmanager
    async def running(self, host: str = HOST) -> AsyncIterator[IgdRouter]:
        """Answer until the block ends."""
        self.host = host
        udp = self._udp = trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        await udp.bind((host, 0))
        self.ssdp_port = udp.getsockname()[1]
        async with trio.open_nursery() as self._nursery:
            listeners = await self._nursery.start(trio.serve_tcp, self._serve, 0)
            self.http_port = listeners[0].socket.getsockname()[1]
            self._nursery.start_soon(self._answer_searches, udp)
            yield self
            self._nursery.cancel_scope.cancel()
        udp.close()

    async def _answer_searches(self, udp: trio.socket.SocketType) -> None:
        while True:
            datagram, sender = await udp.recvfrom(2048)
            self.searches += 1
            assert datagram.startswith(b"M-SEARCH * HTTP/1.1\r\n")
            target = re.search(rb"ST: (\S+)", datagram)
            assert target is not None
            for router in (self, *self.others):
                await router.answer_search(target[1], sender)

    async def answer_search(self, target: bytes, sender: tuple[str, int]) -> None:
        """Respond with the address of the description."""
        location = (self.location or self.url).encode()
        lines = (b"HTTP/1.1 200 OK", b"ST: " + target, b"Location: " + location)
        assert self._udp is not None
        await self._udp.sendto(b"\r\n".join(lines) + b"\r\n\r\n", sender)

    async def _serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            request = b""
            while b"\r\n\r\n" not in request:
                if not (chunk := await stream.receive_some(4096)):
                    return
                request += chunk
            head, _, body = request.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            while length is not None and len(body) < int(length[1]):
                body += await stream.receive_some(4096)
            await self._respond(stream, head.decode(), body.decode())
            await stream.aclose()

    async def _respond(self, stream: trio.SocketStream, head: str, body: str) -> None:
        self.paths.add(head.split()[1])
        action = re.search(r'soapaction: *"[^"#]*#(\w+)"', head, re.IGNORECASE)
        if action is None:
            self.requests.append(" ".join(head.split()[:2]))
            if self.describe is not None:
                await self.describe(self, stream)
            else:
                await reply(stream, DESCRIPTION.format(service=SERVICE, control=self.control))
            return
        self.requests.append(action[1])
        arguments = dict(re.findall(r"<(New\w+)>([^<]*)</\1>", body))
        code, values = await self._do(action[1], arguments)
        if code:
            fault = (
                "<s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail>"
                f'<UPnPError xmlns="urn:schemas-upnp-org:control-1-0"><errorCode>{code}</errorCode>'
                "<errorDescription>\x1b[2Jno</errorDescription></UPnPError></detail></s:Fault>"
            )
            await reply(stream, _envelope(fault), status="500 Internal Server Error")
            return
        inner = "".join(f"<{name}>{value}</{name}>" for name, value in values.items())
        await reply(
            stream, _envelope(f'<u:{action[1]}Response xmlns:u="{SERVICE}">{inner}</u:{action[1]}Response>')
        )

    async def _do(self, action: str, arguments: dict[str, str]) -> tuple[int, dict[str, str]]:
        """Return the error code of an action, 0 for none, and what it returns."""
        match action:
            case "GetExternalIPAddress":
                return 0, {"NewExternalIPAddress": self.external_host}
            case "AddPortMapping":
                return await self._add(arguments), {}
            case "DeletePortMapping":
                port = int(arguments["NewExternalPort"])
                if self.mappings.pop(port, None) is None:
                    return 714, {}
                if port in self._listeners:
                    self._listeners.pop(port).cancel()
                return 0, {}
        return 401, {}

    async def _add(self, arguments: dict[str, str]) -> int:
        port, lease = int(arguments["NewExternalPort"]), int(arguments["NewLeaseDuration"])
        if self.error is not None:
            return self.error
        if port in self.taken:
            return 718
        if lease and self.only_for_ever:
            return 725
        inside = (arguments["NewInternalClient"], int(arguments["NewInternalPort"]), lease)
        known, self.mappings[port] = self.mappings.get(port), inside
        if known is None and self.forwards and self._nursery is not None:
            await self._nursery.start(self._forward, port)
        return 0

    async def _forward(self, port: int, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async def pass_on(outside: trio.SocketStream) -> None:
            host, inside_port, _lease = self.mappings[port]
            inside = await trio.open_tcp_stream(host, inside_port)
            async with inside, trio.open_nursery() as nursery:
                nursery.start_soon(_copy, outside, inside)
                nursery.start_soon(_copy, inside, outside)

        with trio.CancelScope() as self._listeners[port]:
            listeners = await trio.open_tcp_listeners(port, host=self.host)
            task_status.started()
            await trio.serve_listeners(pass_on, listeners)


async def _copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for chunk in source:
            await target.send_all(chunk)
        await target.send_eof()


def _envelope(inner: str) -> str:
    return (
        '<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"'
        ' s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body>'
        + inner
        + "</s:Body></s:Envelope>"
    )


async def reply(stream: trio.SocketStream, body: str, *, status: str = "200 OK", headers: str = "") -> None:
    """Send an HTTP response with an XML body."""
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/xml\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    await stream.send_all(head.encode() + data)
