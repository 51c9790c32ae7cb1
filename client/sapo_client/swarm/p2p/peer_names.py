"""The IP addresses behind a peer's DNS name.

Whoever announces a name decides where it leads. A stranger's name that leads into the networks of those who
dial it would have them connect to their own printers and databases. So a name that came from the internet
leads to the internet only; one that came from a local network, such as a VPN, also leads there.
"""

from __future__ import annotations

import socket
from typing import Final

import trio

from sapo_client.swarm.addresses import PeerAddress, Scope, parse_address, scope_of
from sapo_client.swarm.transport import TransportError

_FAMILIES: Final = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}


async def resolved(address: PeerAddress, source: Scope) -> tuple[PeerAddress, ...]:
    """Return the IP addresses to which an address leads: itself, if it has no name.

    Args:
        source: region of whoever told the address; this machine if the operator or the swarm's terms did.

    Raises:
        TransportError: its name leads to no address, or only to those of a smaller scope.
        OSError: it cannot be resolved.
    """
    if (family := _FAMILIES.get(address.kind)) is None:
        return (address,)
    found = await trio.socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM)
    ending = f"tcp/{address.port}/p2p/{address.peer_id}"
    texts = dict.fromkeys(f"/{_kind(of)}/{where[0]}/{ending}" for of, *_, where in found)
    known = [parsed for parsed in map(parse_address, texts) if parsed is not None]
    least = min(source, scope_of(address.host))
    dialled = tuple(each for each in known if scope_of(each.host) >= least)
    if not dialled:
        raise TransportError(f"{address.host} leads into a local network, or nowhere")
    return dialled


def _kind(family: int) -> str:
    return "ip6" if family == socket.AF_INET6 else "ip4"
