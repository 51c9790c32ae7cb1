"""Payload of the peer exchange: full multiaddrs, one per line. Pure.

A request tells the asker's own addresses, a response the addresses of the peers that the asked one is
connected with or was told of. Both are hearsay: Noise proves who answers at an address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sapo_client.swarm.addresses import PeerAddress, parse_address

PROTOCOL: Final = "/sapo/peers/1"
MAX_ADDRESSES: Final = 64  # more than any node wants to dial
MAX_PAYLOAD_BYTES: Final = 16 * 1024  # 64 addresses of 250 characters


def encode(addresses: Iterable[PeerAddress]) -> bytes:
    """Payload of at most `MAX_ADDRESSES` addresses."""
    return "\n".join(str(address) for address in list(addresses)[:MAX_ADDRESSES]).encode()


def decode(payload: bytes) -> tuple[PeerAddress, ...]:
    """The addresses that we could dial; lines of another form are skipped, not every client is ours."""
    lines = payload.decode("ascii", errors="replace").split("\n")[:MAX_ADDRESSES]
    parsed = (parse_address(line) for line in lines)
    return tuple(address for address in parsed if address is not None)
