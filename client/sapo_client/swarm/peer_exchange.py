"""Payload of the peer exchange: full multiaddrs, one per line. Pure.

A request holds the asker's own addresses, a response the addresses of peers that the other side is
connected with or knows of. Both are unverified: Noise proves which peer answers at an address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sapo_client.swarm.addresses import PeerAddress, parse_address

PROTOCOL: Final = "/sapo/peers/1"
MAX_ADDRESSES: Final = 64  # more than any node wants to dial
MAX_PAYLOAD_BYTES: Final = 16 * 1024  # 64 addresses of 250 characters


def encode(addresses: Iterable[PeerAddress]) -> bytes:
    """Return the payload for at most `MAX_ADDRESSES` addresses."""
    return "\n".join(str(address) for address in list(addresses)[:MAX_ADDRESSES]).encode()


def decode(payload: bytes) -> tuple[PeerAddress, ...]:
    """Return the addresses that this transport can dial; other lines are skipped, as of other clients."""
    lines = payload.decode("ascii", errors="replace").split("\n")[:MAX_ADDRESSES]
    parsed = (parse_address(line) for line in lines)
    return tuple(address for address in parsed if address is not None)
