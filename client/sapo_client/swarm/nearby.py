"""Names and text records of a node in the local network (mDNS with DNS-SD, RFC 6762 and 6763). Pure.

A node is a service of type ``_sapo-<8 digits>._tcp.local.``, the digits being the first ones of its swarm's
id in hexadecimal: nodes of different swarms do not find each other. The text record holds ``swarm=``, the
whole id, and ``a0=`` to ``a7=``, full multiaddrs of the node. None of it is signed: Noise proves who answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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
