"""The end of a command whose reader has closed the pipe, as in `sapo rollouts | head -1`."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from sapo_client.errors import ExitCode

_NO_READER: Final = select.POLLERR | select.POLLHUP


@contextmanager
def ended_by_reader() -> Iterator[None]:
    """End the process quietly with ``ExitCode.PIPE`` if nobody reads its output any more.

    Raises:
        SystemExit: with that code, or the command's own.
        BrokenPipeError: another pipe is closed, which is a bug.
    """
    code: object = ExitCode.DONE
    try:
        yield
    except BrokenPipeError:
        if not _has_no_reader():
            raise
        code = ExitCode.PIPE
    except SystemExit as end:
        code = end.code
        if isinstance(end.__context__, BrokenPipeError):  # typer has made it exit code 1
            if not _has_no_reader():
                raise end.__context__ from None
            code = ExitCode.PIPE
    if _is_lost() and not code:
        code = ExitCode.PIPE
    sys.exit(code)  # type: ignore[arg-type]  # whatever the command gave


def _has_no_reader() -> bool:
    """Whether standard output or standard error is a pipe that nobody reads."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    return any(events & _NO_READER for _, events in poll.poll(0))


def _is_lost() -> bool:
    """Flush the output; whether some of it had no reader, and is dropped, not written again at the exit."""
    dropped = [_is_dropped(stream) for stream in (sys.stdout, sys.stderr) if stream is not None]
    return any(dropped)


def _is_dropped(stream: TextIO) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return True
    return False
