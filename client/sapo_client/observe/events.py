"""The event file: one JSON object per line, the node's history for people and programs.

Every line has `time` (UTC, ISO 8601), `seq` (rises by one, also across restarts) and `event`.
Each line is appended by one write and never synced: losing the last second in a power failure is acceptable,
making each round wait for the disk is not. A line left incomplete by a crash is terminated at the next start
and skipped by readers.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sapo_client.observe.plain import JSON, to_json

_LOG = logging.getLogger(__name__)

_WARNINGS = frozenset(
    {
        "checkpoint_failed",
        "checkpoint_set_aside",
        "heard_self",
        "learner_restarted",
        "ledger_endpoint",
        "ledger_error",
        "own_rollout_refused",
        "own_slot_taken_twice",
        "rolled_back",
        "service_failed",
    }
)
_MESSAGES = frozenset(
    {
        "admitted",
        "audit_skipped",
        "introduction_failed",
        "published",
        "refused",
        "slot_skipped",
        "step",
        "verified",
    }
)
"""What happens many times a minute; every other event happens a few times an epoch."""

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
DEFAULT_KEEP = 5
TAIL_BYTES = 1024 * 1024  # surely holds the last whole line: envelopes are at most 128 KiB

Event = dict[str, JSON]

Listener = Callable[[str, Mapping[str, object]], None]
"""Takes the name and the fields of each event, in the thread that writes it; must be quick."""


class EventLog:
    """The open event file of a running node; thread-safe."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        keep: int = DEFAULT_KEEP,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._clock = clock
        self._guard = threading.Lock()
        self._listeners: list[Listener] = []
        self._next_seq = _last_seq(path) + 1
        self._descriptor, self._size = _open_append(path)

    def listen(self, listener: Listener) -> None:
        """Call a function with every later event."""
        self._listeners.append(listener)

    def write(self, event: str, **fields: object) -> None:
        """Append an event; bytes are written as hexadecimal. The log and the listeners get it as well."""
        _log(event, fields)
        for listener in self._listeners:
            listener(event, fields)
        with self._guard:
            stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
            record = {"time": stamp, "seq": self._next_seq, "event": event} | fields
            line = json.dumps(to_json(record), separators=(",", ":")).encode() + b"\n"
            if self._size and self._size + len(line) > self._max_bytes:
                self._rotate()
            os.write(self._descriptor, line)
            self._size += len(line)
            self._next_seq += 1

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        with self._guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _rotate(self) -> None:
        os.close(self._descriptor)
        for age in range(self._keep - 1, 0, -1):
            older = _part(self._path, age)
            if older.exists():
                older.replace(_part(self._path, age + 1))
        self._path.replace(_part(self._path, 1))
        self._descriptor, self._size = _open_append(self._path)


def _log(event: str, fields: dict[str, object]) -> None:
    usual = logging.DEBUG if event in _MESSAGES else logging.INFO
    level = logging.WARNING if event in _WARNINGS else usual
    if _LOG.isEnabledFor(level):
        shown = {name: to_json(value) for name, value in fields.items() if name != "trace"}
        _LOG.log(level, "%s %s", event, json.dumps(shown))


def read_events(path: Path) -> Iterator[Event]:
    """Yield every whole event, the rotated parts first; incomplete lines are skipped."""
    for part in [*reversed(_rotated(path)), path]:
        yield from _events_in(part)


def last_events(path: Path, event: str, count: int) -> list[Event]:
    """Return the latest `count` events of one name, oldest first."""
    found: list[Event] = []
    for part in [path, *_rotated(path)]:
        matching = [record for record in _events_in(part) if record["event"] == event]
        found = matching + found
        if len(found) >= count:
            break
    return found[len(found) - count :] if len(found) > count else found


def _part(path: Path, age: int) -> Path:
    return path.with_name(f"{path.name}.{age}")


def _rotated(path: Path) -> list[Path]:
    """Return the rotated parts, newest first."""
    parts: list[Path] = []
    while (part := _part(path, len(parts) + 1)).exists():
        parts.append(part)
    return parts


def _events_in(part: Path) -> Iterator[Event]:
    if not part.exists():
        return
    with part.open("rb") as stream:
        for line in stream:
            event = _parse(line)
            if event is not None:
                yield event


def _parse(line: bytes) -> Event | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record: Any = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, dict) and isinstance(record.get("event"), str)
    return record if whole and isinstance(record.get("seq"), int) else None


def _open_append(path: Path) -> tuple[int, int]:
    """Open the file and return its descriptor and size; an incomplete last line is terminated first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        size += os.write(descriptor, b"\n")
    return descriptor, size


def _last_seq(path: Path) -> int:
    """Return the highest sequence number written so far, 0 in a new directory."""
    for part in [path, *_rotated(path)]:
        if not part.exists():
            continue
        with part.open("rb") as stream:
            stream.seek(max(0, part.stat().st_size - TAIL_BYTES))
            events = [event for line in stream if (event := _parse(line)) is not None]
        if events:
            return int(str(events[-1]["seq"]))
    return 0
