"""The last ports of a node that listens on any free one: peers have saved its addresses with them."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sapo_client.atomic_files import write_atomically
from sapo_client.swarm.addresses import ListenAddress, PeerAddress, parse_listen_address

_LOG: Final = logging.getLogger(__name__)
_MAX_BYTES: Final = 4096


def with_last_ports(listen: Iterable[str], path: Path | None) -> tuple[str, ...]:
    """Return addresses to listen on, with the last port of the same host in place of port 0 if it is free.

    Args:
        path: the file of `keep_ports`; None for no change.
    """
    last = [] if path is None else _load(path)
    found = []
    for text in listen:
        address = parse_listen_address(text)
        if address is not None and address.port == 0:
            kept = next((one for one in last if one.host == address.host), None)
            if kept is not None:
                last.remove(kept)
                if is_free(kept):
                    text = _text(kept.host, kept.port)
        found.append(text)
    return tuple(found)


def keep_ports(path: Path, listening: Iterable[PeerAddress]) -> None:
    """Replace the file by the addresses at which this node listens, in one step.

    A node whose disk is full listens all the same, and has another port after a restart.
    """
    try:
        write_atomically(path, "".join(f"{_text(each.host, each.port)}\n" for each in listening))
    except OSError as error:
        _LOG.warning("the port that this node listens on is not kept for its next start: %s", error)


def is_free(address: ListenAddress) -> bool:
    """Whether nobody listens at an address, and this process may.

    The library sets SO_REUSEPORT on its sockets: two nodes could listen on one port, and each would receive a
    part of the other's connections.
    """
    try:
        probe_port(address)
    except OSError:
        return False
    return True


def probe_port(address: ListenAddress) -> None:
    """Bind an address once.

    Raises:
        OSError: somebody listens there, or this process may not.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port of closed connections is free
        probe.bind((address.host, address.port))


def _load(path: Path) -> list[ListenAddress]:
    try:
        with path.open("rb") as file:
            lines = file.read(_MAX_BYTES).decode("ascii", errors="replace").splitlines()
    except OSError:
        return []
    parsed = (parse_listen_address(line) for line in lines)
    return [address for address in parsed if address is not None and address.port]


def _text(host: str, port: int) -> str:
    return f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}"
