"""Following a file that a node appends to and rotates."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 0.25
_BLOCK: Final = 64 * 1024


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """Return the latest whole lines of a file, oldest first, and the position after them."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        content, start = b"", size
        while start and content.count(b"\n") <= count:
            step = min(_BLOCK, start)
            start -= step
            stream.seek(start)
            content = stream.read(step) + content
    whole, _, rest = content.rpartition(b"\n")
    lines = whole.split(b"\n")[-count:] if count and whole else []
    return [line.decode(errors="replace") for line in lines], size - len(rest)


def following(path: Path, position: int, wait: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Yield lines that are appended after a position, for ever; a rotated file is read to its end first.

    Args:
        wait: called with the seconds to sleep between two reads.
    """
    stream = path.open("rb")
    stream.seek(position)
    rest = b""
    try:
        while True:
            while block := stream.read(_BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            if (newer := _replaced(path, stream.fileno())) is not None:
                if not stream.read(1):  # nothing came between the last read and the rotation
                    stream.close()
                    stream, rest = newer, b""
                    continue
                stream.seek(-1, os.SEEK_CUR)
                newer.close()
                continue
            wait(_LOOK_SECONDS)
    finally:
        stream.close()


def _replaced(path: Path, descriptor: int) -> BufferedReader | None:
    """Return the file now at the path if it is another than the open one, opened; none if it is the same."""
    try:
        newer = path.open("rb")
    except FileNotFoundError:
        return None
    if os.path.sameopenfile(newer.fileno(), descriptor):
        newer.close()
        return None
    return newer
