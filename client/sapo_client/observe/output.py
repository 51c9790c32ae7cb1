"""Standard output and error of a node, whose writes never block the node.

A write to a full pipe, or to a terminal that was halted with Ctrl-S, does not return. A node must not stop
for that: its event loop, which serves peers and `sapo status`, is the thread that prints.
"""

from __future__ import annotations

import io
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Final, TextIO

from sapo_client.full_disk import disk_full

MAX_LINES: Final = 1000
"""Maximum number of lines waiting to be written; further ones are dropped and counted."""

_CLOSE_SECONDS: Final = 2.0
"""How long a stopping node waits until its last lines are written."""


@contextmanager
def unblocked_output() -> Iterator[None]:
    """Have threads write what is printed meanwhile; at the end wait shortly for the last lines.

    Each stream has a thread of its own, so that a blocked standard output does not delay errors. Streams
    without a file descriptor are left as they are.
    """
    try:
        descriptors = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # it may be a file on a full disk
            stream.flush()
    out = _Lines(sys.stdout, OutputThread(descriptors[0]))
    error = _Lines(sys.stderr, OutputThread(descriptors[1]))
    with redirect_stdout(out), redirect_stderr(error):
        try:
            yield
        finally:
            out.end(_CLOSE_SECONDS)
            error.end(_CLOSE_SECONDS)


class OutputThread:
    """Writes lines to a file descriptor, in order, without blocking the caller.

    Attributes:
        lost: number of lines that could not be written since the disk became full.
    """

    def __init__(self, descriptor: int, *, max_lines: int = MAX_LINES) -> None:
        self.descriptor = descriptor
        self._waiting: queue.Queue[bytes | None] = queue.Queue(max_lines)
        self._left_out = 0
        self._is_begun = False
        self.lost = 0
        self._ended = threading.Event()
        threading.Thread(target=self._write_all, name="output", daemon=True).start()

    def give(self, line: bytes) -> None:
        """Queue a line, or count it as dropped if the queue is full."""
        try:
            if self._left_out:
                self._waiting.put_nowait(self._notice())
                self._left_out = 0
            self._waiting.put_nowait(line)
        except queue.Full:
            self._left_out += 1

    def end(self, seconds: float) -> None:
        """Accept no more lines, and wait until the queued ones are written, at most for some seconds."""
        overdue = time.monotonic() + seconds
        with suppress(queue.Full):
            if self._left_out:
                self._waiting.put(self._notice(), timeout=seconds)
            self._waiting.put(None, timeout=max(0.0, overdue - time.monotonic()))
            self._ended.wait(max(0.0, overdue - time.monotonic()))

    def _notice(self) -> bytes:
        return f"({self._left_out} lines were left out: this output was not read)\n".encode()

    def _write_all(self) -> None:
        readable = True
        while (line := self._waiting.get()) is not None:
            readable = readable and self._writes(line)
        self._ended.set()

    def _writes(self, line: bytes) -> bool:
        """Write a line, or count it as lost; return false if the descriptor has no reader any more."""
        try:
            if self._is_begun:
                self._write(b"\n")
            if self.lost:
                self._write(f"({self.lost} lines were left out: the disk was full)\n".encode())
                self.lost = 0
            self._write(line)
        except OSError as error:
            self.lost += 1
            return disk_full(error, None) is not None  # else the reader of a pipe is gone, or the terminal
        return True

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]
            self._is_begun = bool(rest)


class _Lines(io.TextIOBase):
    """A text stream that replaces another one, and whose lines a thread writes."""

    def __init__(self, replaced: TextIO, thread: OutputThread) -> None:
        self._replaced = replaced
        self._thread = thread
        self._rest = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._replaced.encoding

    def isatty(self) -> bool:
        return self._replaced.isatty()

    def fileno(self) -> int:
        return self._thread.descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._give(line + "\n")
        return len(text)

    def flush(self) -> None:
        """Queue the incomplete line, such as a prompt."""
        if self._rest:
            self._give(self._rest)
            self._rest = ""

    def end(self, seconds: float) -> None:
        """Write the queued lines, waiting at most for some seconds."""
        self.flush()
        self._thread.end(seconds)

    def _give(self, line: str) -> None:
        self._thread.give(line.encode(self.encoding, "backslashreplace"))
