"""Multiaddrs as text: strict about the few forms this transport can dial."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sapo_client.swarm.peer_id import key_from_peer_id

_MAX_ADDRESS_CHARACTERS: Final = 300  # a full DNS name, a port and a peer id
_FORM: Final = re.compile(
    r"/(?P<kind>ip4|ip6|dns|dns4|dns6)/(?P<host>[0-9A-Za-z.:_-]{1,253})/tcp/(?P<port>[0-9]{1,5})"
    r"/p2p/(?P<peer_id>[1-9A-HJ-NP-Za-km-z]{1,64})"
)
_LISTEN_FORM: Final = re.compile(r"/(?P<kind>ip4|ip6)/(?P<host>[0-9A-Fa-f.:]{2,45})/tcp/(?P<port>[0-9]{1,5})")
_UNSPECIFIED: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  compared, never bound
_THIS_MACHINE: Final = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "0.0.0.0/8", "::/96")))
_LOCAL_NETWORKS: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "100.64.0.0/10",
            "64:ff9b:1::/48",  # translation within a network, RFC 8215
            "fc00::/7",
            "fe80::/10",
            "fec0::/10",
        ),
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Where a translator gives IPv6 hosts the IPv4 internet, RFC 6052."""
_NUMERIC_NAME: Final = re.compile(r"(.*\.)?([0-9]+|0[xX][0-9A-Fa-f]*)\.?")
"""Forms that resolvers parse as an IPv4 address, as 127.1 or 0x7f000001; no DNS name ends like this."""
_LOCAL_NAMES: Final = re.compile(r"(.+\.)?(local|lan|internal|home\.arpa|localdomain)|[^.]+")


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Scope(IntEnum):
    """The region in which an address means the same host; a smaller scope lies within the larger ones."""

    MACHINE = 0
    NETWORK = 1
    INTERNET = 2


def scope_of(host: str) -> Scope:
    """Return the scope of an IP address or a DNS name; names are global unless they are known as local."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.lower().rstrip(".")
        if name == "localhost" or name.endswith(".localhost"):
            return Scope.MACHINE
        return Scope.NETWORK if _LOCAL_NAMES.fullmatch(name) else Scope.INTERNET
    address = _within(address)
    if any(address in network for network in _THIS_MACHINE):
        return Scope.MACHINE
    return Scope.NETWORK if any(address in network for network in _LOCAL_NETWORKS) else Scope.INTERNET


def _within(address: IpAddress) -> IpAddress:
    """Return the IPv4 address that an IPv6 address leads to: mapped, translated (NAT64), 6to4 or Teredo."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo is not None else address)


def network_of(host: str) -> str:
    """Return the network that probably has one owner: an IPv4 address, an IPv6 /64, or a registered
    domain."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ".".join(host.lower().rstrip(".").split(".")[-2:])
    address = _within(address)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def site_of(host: str) -> str:
    """Return the network that is rented as a whole: an IPv4 /24, an IPv6 /48, or a domain."""
    return _wider(host, bits_v4=24, bits_v6=48)


def network_group_of(host: str) -> str:
    """Return the network that probably belongs to one provider: an IPv4 /16, an IPv6 /32, or a domain."""
    return _wider(host, bits_v4=16, bits_v6=32)


def _wider(host: str, *, bits_v4: int, bits_v6: int) -> str:
    network = network_of(host)
    try:
        address = ipaddress.ip_interface(network).ip
    except ValueError:
        return network
    bits = bits_v4 if address.version == 4 else bits_v6
    return str(ipaddress.ip_network(f"{address}/{bits}", strict=False))


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Address of one peer: host, port and peer id."""

    kind: str
    host: str
    port: int
    peer_id: str

    def __str__(self) -> str:
        return f"/{self.kind}/{self.host}/tcp/{self.port}/p2p/{self.peer_id}"

    @property
    def unspecified(self) -> bool:
        """Whether the host part means "all interfaces", which cannot be dialled."""
        return self.host in _UNSPECIFIED

    @property
    def network(self) -> str:
        """Return the part of an address that belongs to one owner, as `network_of` does."""
        return network_of(self.host)

    def means_the_same(self, host: str) -> bool:
        """Whether both ends of a connection to `host` mean the same by this address.

        An address of this machine or of a local network means another host elsewhere. So it is exchanged only
        with peers that are connected within that machine or network.
        """
        return self.unspecified or scope_of(self.host) >= scope_of(host)

    def seen_from(self, host: str) -> PeerAddress:
        """Return the address with an unspecified host replaced by the IP that the peer connected from."""
        if not self.unspecified:
            return self
        return PeerAddress("ip6" if ":" in host else "ip4", host, self.port, self.peer_id)


def parse_address(text: str) -> PeerAddress | None:
    """Return the address in a full TCP multiaddr that ends in an Ed25519 peer id, or None."""
    found = _FORM.fullmatch(text) if len(text) <= _MAX_ADDRESS_CHARACTERS else None
    if found is None or not 0 < int(found["port"]) < 2**16 or key_from_peer_id(found["peer_id"]) is None:
        return None
    if found["kind"] in {"ip4", "ip6"} and _ip_version(found["host"]) != int(found["kind"][2]):
        return None
    if found["kind"].startswith("dns") and _NUMERIC_NAME.fullmatch(found["host"]):
        return None
    return PeerAddress(found["kind"], found["host"], int(found["port"]), found["peer_id"])


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address to listen on: an IP address of this machine, and a port, 0 for any free one."""

    host: str
    port: int


def parse_listen_address(text: str) -> ListenAddress | None:
    """Return the address in a TCP multiaddr without a peer id, or None."""
    found = _LISTEN_FORM.fullmatch(text)
    if found is None or int(found["port"]) >= 2**16:
        return None
    if _ip_version(found["host"]) != int(found["kind"][2]):
        return None
    return ListenAddress(str(ipaddress.ip_address(found["host"])), int(found["port"]))


def listens_beyond_loopback(listen: Iterable[str]) -> bool:
    """Whether one of the TCP multiaddrs without a peer id is more than this machine's own."""
    parsed = filter(None, map(parse_listen_address, listen))
    return any(address.host in _UNSPECIFIED or scope_of(address.host) > Scope.MACHINE for address in parsed)


def _ip_version(host: str) -> int | None:
    """Return the version of an IP address in its text form, or None if it is none."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None
