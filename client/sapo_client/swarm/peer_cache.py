"""Optional file of addresses that were reached before: a start without bootstrap peers needs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sapo_client.atomic_files import write_atomically
from sapo_client.swarm.addresses import PeerAddress, parse_address

_MAX_LINES: Final = 256


def load(path: Path) -> tuple[PeerAddress, ...]:
    """Return the addresses in the file, none if it is missing; unreadable lines are skipped."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()[:_MAX_LINES]
    except FileNotFoundError:
        return ()
    parsed = (parse_address(line.strip()) for line in lines)
    return tuple(address for address in parsed if address is not None)


def save(path: Path, addresses: Iterable[PeerAddress]) -> None:
    """Replace the file in one step."""
    lines = [f"{address}\n" for address in list(dict.fromkeys(addresses))[:_MAX_LINES]]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(lines))
