"""Reader of a growing event file: new complete lines since the last read, across rotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sapo_client.observe.events import Event


class EventTail:
    """An event file, read from its beginning and then as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._rest = b""

    def new_events(self) -> list[Event]:
        """Return the events that were written since the last call."""
        return [event for part in self._parts() for event in self._read(part)]

    def _parts(self) -> list[Path]:
        """Return the file, preceded by its rotated part if that part was not read to its end."""
        rotated = self._path.with_name(self._path.name + ".1")
        moved = self._inode and rotated.exists() and rotated.stat().st_ino == self._inode
        return [rotated, self._path] if moved else [self._path]

    def _read(self, path: Path) -> Iterator[Event]:
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            return
        with stream:
            inode = path.stat().st_ino
            if inode != self._inode:
                self._inode, self._offset, self._rest = inode, 0, b""
            stream.seek(self._offset)
            content = stream.read()
        self._offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            if (event := _parse(line)) is not None:
                yield event


def _parse(line: bytes) -> Event | None:
    try:
        record: Any = json.loads(line)
    except ValueError:  # incomplete after a crash
        return None
    return record if isinstance(record, dict) and isinstance(record.get("event"), str) else None
