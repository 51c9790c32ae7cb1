"""Finds routers in the local network by a search over multicast (SSDP, UPnP Device Architecture 1.1)."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import trio

from sapo_client.swarm.addresses import Scope, scope_of
from sapo_client.swarm.router.answers import MAX_DATAGRAM_BYTES, SEARCHED, encode_search, parse_found


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Where routers are looked for, and how long.

    Attributes:
        seconds: to wait for the first answer.
        settle_seconds: to wait for others after it.
        max_datagrams: read in one search, of whatever content.
        max_routers: kept of one search.
    """

    host: str = "239.255.255.250"
    port: int = 1900
    seconds: float = 4.0
    settle_seconds: float = 1.0
    max_datagrams: int = 64
    max_routers: int = 4

    @property
    def scope(self) -> Scope:
        """Where those who answer must be: on this machine if that alone is searched, else in the network."""
        return Scope.MACHINE if scope_of(self.host) is Scope.MACHINE else Scope.NETWORK


async def search(limits: SearchLimits) -> tuple[str, ...]:
    """Return the URLs of routers' descriptions, one of each host, in the order of their answers.

    Raises:
        OSError: this machine has no network, or none with multicast.
    """
    found: dict[str, str] = {}
    with (
        trio.socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        trio.move_on_after(limits.seconds) as rest,
    ):
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
        for target in SEARCHED:
            await udp.sendto(encode_search(target, limits.host, limits.port), (limits.host, limits.port))
        for _ in range(limits.max_datagrams):
            datagram, (sender, *_) = await udp.recvfrom(MAX_DATAGRAM_BYTES + 1)
            url = parse_found(datagram, sender, limits.scope)
            if url is None or sender in found:
                continue
            found[sender] = url
            rest.deadline = min(rest.deadline, trio.current_time() + limits.settle_seconds)
            if len(found) == limits.max_routers:
                break
    return tuple(found.values())
