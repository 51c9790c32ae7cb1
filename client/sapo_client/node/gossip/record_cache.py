"""File of signed address records for the next start; they are validated again when they are used."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sapo_client.atomic_files import write_atomically
from sapo_client.node.gossip.record_directory import RecordSource
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.islands.address_record import MAX_RECORD_BYTES

MAX_SAVED: Final = 64  # those of four full islands, 130 KiB at most

_VALUES_EACH: Final = 5
_MAX_BYTES: Final = MAX_SAVED * (MAX_RECORD_BYTES + 256)
_NOBODY: Final = ""

SavedRecord = tuple[bytes, RecordSource]
"""A record, and the peer to which it is attributed."""


def load(path: Path) -> tuple[SavedRecord, ...]:
    """Return the records in the file with their signatures unchecked; none if it is missing or damaged."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError:  # a node can do without
        return ()
    if len(data) > _MAX_BYTES:
        return ()
    try:
        rows = decode(data, 1 + MAX_SAVED * _VALUES_EACH)
    except RemoteProtocolError:
        return ()
    return (
        tuple(saved for row in rows if (saved := _parse(row)) is not None) if isinstance(rows, tuple) else ()
    )


def save(path: Path, records: Iterable[SavedRecord]) -> None:
    """Replace the file in one step.

    Raises:
        OSError: it cannot be written.
    """
    rows = [(message, source.host, int(source.chosen)) for message, source in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, encode(tuple(rows[:MAX_SAVED])))


def _parse(row: object) -> SavedRecord | None:
    match row:
        case (bytes() as message, str() as host, int() as chosen):
            return message, RecordSource(_NOBODY, host, bool(chosen))
    return None
