"""Parsing of routers' responses. Pure.

A search is answered by UDP datagrams that name the URL of a description. The process that communicates with
a router writes one line, which is not trusted either: a library in C has parsed the router's responses there.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sapo_client.swarm.addresses import Scope, scope_of

SEARCHED: Final = (
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    "urn:schemas-upnp-org:device:InternetGatewayDevice:2",
)

MAX_DATAGRAM_BYTES: Final = 2048
MAX_LINE_BYTES: Final = 256

_LOCATION: Final = re.compile(rb"^location:[ \t]*([!-~]{1,200})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_URL: Final = re.compile(r"http://([0-9.]{7,15})(?::([1-9][0-9]{0,4}))?/[!-~]{0,180}")
_MAPPED: Final = re.compile(r"mapped ([0-9]{1,5}) ([0-9]{1,10}) ([0-9.]{7,15}|unknown)")
_OTHERS: Final = re.compile(r"(refused|unusable) ([A-Za-z0-9 -]{1,60})")


class RouterState(StrEnum):
    """State of the port mapping at the router."""

    WAITING = "waiting"
    """Not asked: peers can connect, or have not tried yet."""
    SILENT = "silent"
    """No router answers."""
    REFUSED = "refused"
    """The router forwards no port."""
    UNUSABLE = "unusable"
    """The answer is not that of a router."""
    MAPPED = "mapped"
    """The router says that it forwards a port."""


@dataclass(frozen=True, slots=True)
class RouterView:
    """Facts about the node's router.

    Attributes:
        host: the router's address in the local network.
        port: the router's port that leads to this node.
        external_host: the address that the router says it has outside, which may be false.
        detail: why it was refused or is of no use; letters, digits, spaces and hyphens.
    """

    state: RouterState
    host: str | None = None
    port: int | None = None
    external_host: str | None = None
    detail: str | None = None

    @property
    def is_behind_another(self) -> bool:
        """Whether the router reports an external address that is not public."""
        return self.external_host is not None and not ipaddress.ip_address(self.external_host).is_global


@dataclass(frozen=True, slots=True)
class MapReply:
    """Answer of one router: the state, and for how many seconds a port is forwarded (0: for ever)."""

    view: RouterView
    lease_seconds: int = 0


def encode_search(target: str, host: str, port: int) -> bytes:
    """Return the datagram that asks for devices of a type, for a multicast address and port."""
    lines = (
        "M-SEARCH * HTTP/1.1",
        f"HOST: {host}:{port}",
        'MAN: "ssdp:discover"',
        "MX: 2",
        f"ST: {target}",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def parse_found(datagram: bytes, sender: str, scope: Scope) -> str | None:
    """Return the URL of a router's description, or None.

    The URL must lead to the sender itself: another one would make this node ask whatever a stranger in the
    local network names.

    Args:
        scope: that of the network that was searched; responses from elsewhere are ignored.
    """
    if not datagram.startswith(b"HTTP/1.1 200") or len(datagram) > MAX_DATAGRAM_BYTES:
        return None
    found = _LOCATION.search(datagram)
    if found is None or scope_of(sender) is not scope:
        return None
    url = found[1].decode("ascii")
    return url if host_of(url) == sender else None


def host_of(url: str) -> str | None:
    """Return the IPv4 address in an HTTP URL of that form alone; None for any other URL."""
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found[2] or 80) < 2**16:
        return None
    return ip4(found[1])


def parse_line(line: bytes, host: str) -> MapReply | None:
    """Return the reply in the line of the process that asked the router at `host`, or None if it is none."""
    text = line.decode("ascii", errors="replace").removesuffix("\n")
    if len(line) > MAX_LINE_BYTES:
        return None
    if other := _OTHERS.fullmatch(text):
        return MapReply(RouterView(RouterState(other[1]), host, detail=other[2]))
    found = _MAPPED.fullmatch(text)
    if found is None or not 0 < int(found[1]) < 2**16:
        return None
    view = RouterView(RouterState.MAPPED, host, int(found[1]), ip4(found[3]))
    return MapReply(view, int(found[2]))


def ip4(text: str) -> str | None:
    """Return a text that is an IPv4 address in four decimal numbers, None for any other."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        return None
