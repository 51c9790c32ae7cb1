"""Names and text records of a node in the local network (mDNS with DNS-SD, RFC 6762 and 6763).

A node is a service of type ``_sapo-<8 digits>._tcp.local.``, the digits being the first ones of its swarm's
id in hexadecimal: nodes of different swarms do not find each other. The text record holds ``swarm=``, the
whole id, and ``a0=`` to ``a7=``, full multiaddrs of the node. None of it is signed: Noise proves who answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ifaddr import get_adapters

from sapo_client.swarm.addresses import PeerAddress, Scope, parse_address, scope_of

_MAX_ADDRESSES: Final = 8
_MAX_VALUE_BYTES: Final = 250  # an entry of a text record has 255 bytes, its key and "=" included


def service_type(swarm_id: str) -> str:
    """Return the type of service under which the nodes of a swarm are found; the id in hexadecimal digits."""
    return f"_sapo-{swarm_id[:8]}._tcp.local."


def to_text(swarm_id: str, addresses: Iterable[PeerAddress]) -> dict[str, str]:
    """Return the entries of a node's text record: the addresses that mean this node in its network."""
    texts = [str(address) for address in addresses if _is_for_neighbours(address)]
    fitting = [text for text in texts if len(text) <= _MAX_VALUE_BYTES][:_MAX_ADDRESSES]
    return {"swarm": swarm_id, **{f"a{place}": text for place, text in enumerate(fitting)}}


def parse_text(swarm_id: str, entries: Mapping[bytes, bytes | None]) -> tuple[PeerAddress, ...]:
    """Return the addresses in a text record, all of one peer; none if it belongs to another swarm.

    Other keys are skipped: other releases may add some.
    """
    if entries.get(b"swarm") != swarm_id.encode():
        return ()
    values = (entries.get(f"a{place}".encode()) for place in range(_MAX_ADDRESSES))
    parsed = (parse_address(value.decode("ascii", errors="replace")) for value in values if value)
    found = [address for address in parsed if address is not None and _is_for_neighbours(address)]
    return tuple(address for address in found if address.peer_id == found[0].peer_id)


def _is_for_neighbours(address: PeerAddress) -> bool:
    """Whether the address is a host's in the network; link-local ones of IPv6 name an interface besides."""
    return scope_of(address.host) is not Scope.MACHINE and not address.host.lower().startswith("fe80:")


def hosts_of_this_machine() -> tuple[str, ...]:
    """Return the IP addresses of this machine in networks, sorted; link-local ones of IPv6 are left out."""
    hosts = [str(ip.ip if ip.is_IPv4 else ip.ip[0]) for adapter in get_adapters() for ip in adapter.ips]
    return tuple(
        sorted(
            {host for host in hosts if scope_of(host) is not Scope.MACHINE and not host.startswith("fe80")}
        )
    )


def for_neighbours(listening: Iterable[PeerAddress]) -> tuple[PeerAddress, ...]:
    """Return the addresses at which neighbours can connect; an unspecified one becomes one per interface."""
    return tuple(
        PeerAddress(address.kind, host, address.port, address.peer_id)
        for address in listening
        for host in (hosts_of_this_machine() if address.unspecified else (address.host,))
        if scope_of(host) is not Scope.MACHINE and (":" in host) == (address.kind == "ip6")
    )


def dialable(listening: Iterable[str]) -> tuple[str, ...]:
    """Return addresses at which this machine listens as others dial them.

    One that stands for every interface becomes one per IP address of this machine in a network; while there
    is none, it stays as it is. So do addresses of other transports than TCP.
    """
    shown: list[str] = []
    for text in listening:
        address = parse_address(text)
        per_host = for_neighbours([address]) if address is not None and address.unspecified else ()
        shown.extend(map(str, per_host) if per_host else [text])
    return tuple(shown)
