"""The event file: one JSON object per line, the node's history for people and programs.

Every line has `time` (UTC, ISO 8601), `seq` (rises by one, also across restarts) and `event`.
Each line is appended by one write and never synced: losing the last second in a power failure is acceptable,
making each round wait for the disk is not. A line left incomplete by a crash is terminated at the next start
and skipped by readers. A file that was deleted or moved away is followed by a new one. What cannot be
written, as on a full disk, is kept in memory and written with its time once it can be; events of messages
and those beyond the first thousand are only counted, and the event `events_unwritten` says how many are
missing.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sapo_client.logs import is_in_place
from sapo_client.observe.plain import JSON, to_json

_LOG = logging.getLogger(__name__)

_WARNINGS = frozenset(
    {
        "approved_elsewhere",
        "checkpoint_failed",
        "checkpoint_set_aside",
        "events_unwritten",
        "good_lost",
        "heard_self",
        "learner_moved",
        "learner_restarted",
        "learner_waits",
        "ledger_endpoint",
        "ledger_error",
        "own_rollout_refused",
        "own_slot_taken_twice",
        "rolled_back",
        "service_failed",
    }
)
_MAX_LOGGED_VALUES = 16
"""Length of a list that the log shows; a canary event has one value for each of its held-out tasks."""

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
"""Events that occur many times a minute; every other event occurs a few times an epoch."""

DEFAULT_MAX_BYTES = 64 * 1024 * 1024
DEFAULT_KEEP = 5

_MAX_KEPT = 1000
"""Events that are kept while the file cannot be written: a few an epoch, of some hundred bytes each."""

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
        self._is_closed = False
        self._kept: list[Event] = []
        self._unwritten = 0
        self._why = ""
        self._descriptor, self._size = _open_append(path)

    @property
    def folder(self) -> Path:
        """The folder of the file: the node's data directory."""
        return self._path.parent

    def listen(self, listener: Listener) -> None:
        """Call a function with every later event."""
        self._listeners.append(listener)

    def write(self, event: str, **fields: object) -> None:
        """Append an event; bytes are written as hexadecimal. The log and the listeners get it as well.

        Raises:
            ValueError: the file is closed.
        """
        _log(event, fields)
        for listener in self._listeners:
            listener(event, fields)
        with self._guard:
            if self._is_closed:
                raise ValueError(f"the event {event} was written after the event file was closed")
            record: Event = {"time": self._stamp(), "seq": 0, "event": event}
            record |= {name: to_json(value) for name, value in fields.items()}
            try:
                self._append_missing()
                self._append(record)
            except OSError as error:  # a node that cannot write its events continues
                self._keep_or_count(record, error)

    def close(self) -> None:
        """Close the file, after a last attempt at what could not be written; closing twice is allowed."""
        with self._guard:
            if not self._is_closed and (self._kept or self._unwritten):
                with suppress(OSError):
                    self._append_missing()
            self._is_closed = True
            self._close_descriptor()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")

    def _append_missing(self) -> None:
        """Append the events that could not be written, and how many are lost."""
        while self._kept:
            self._append(self._kept[0])
            del self._kept[0]
        if self._unwritten:
            missing: Event = {"count": self._unwritten, "why": self._why}
            record: Event = {"time": self._stamp(), "seq": 0, "event": "events_unwritten"}
            self._append(record | missing)
            self._unwritten = 0
            _log("events_unwritten", missing)

    def _keep_or_count(self, record: Event, error: OSError) -> None:
        """Keep an event that could not be written, or count it if it is one of many."""
        self._why = error.strerror or str(error)
        if not self._kept and not self._unwritten:
            _LOG.warning("events cannot be written to %s for now: %s", self._path, self._why)
        if record["event"] not in _MESSAGES and len(self._kept) < _MAX_KEPT:
            self._kept.append(record)
        else:
            self._unwritten += 1

    def _append(self, record: Event) -> None:
        """Append an event's line, whole or not at all."""
        record["seq"] = self._next_seq
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        if self._descriptor < 0 or not is_in_place(self._descriptor, self._path):
            self._close_descriptor()  # the last rotation failed, or the file was taken away
            self._descriptor, self._size = _open_append(self._path)
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        if os.write(self._descriptor, line) < len(line):
            os.ftruncate(self._descriptor, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += len(line)
        self._next_seq += 1

    def _rotate(self) -> None:
        self._close_descriptor()
        for age in range(self._keep - 1, 0, -1):
            older = _part(self._path, age)
            if older.exists():
                older.replace(_part(self._path, age + 1))
        self._path.replace(_part(self._path, 1))
        self._descriptor, self._size = _open_append(self._path)

    def _close_descriptor(self) -> None:
        """Close the file; its descriptor is forgotten first, for another file may get the same one."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _log(event: str, fields: Mapping[str, object]) -> None:
    usual = logging.DEBUG if event in _MESSAGES else logging.INFO
    level = logging.WARNING if event in _WARNINGS else usual
    if _LOG.isEnabledFor(level):
        shown = {name: _in_short(to_json(value)) for name, value in fields.items() if name != "trace"}
        _LOG.log(level, "%s %s", event, json.dumps(shown))


def _in_short(value: object) -> object:
    """Return a value as the log shows it: a long list is counted, and only the event file has it whole."""
    if isinstance(value, list) and len(value) > _MAX_LOGGED_VALUES:
        return f"{len(value)} values"
    return value


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
