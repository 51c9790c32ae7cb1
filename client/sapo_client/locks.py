"""One process per identity and per data directory.

POSIX record locks are used, not `flock`: a lock that a forked checker worker inherits would outlive a
killed node, and the kernel drops a record lock with the process that took it. They do not exclude a
second taker inside the same process, so held paths are remembered here as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import PRIVATE_DIRECTORY_MODE

_LOG = logging.getLogger(__name__)

_held: set[Path] = set()


@contextlib.contextmanager
def lock(path: Path, *, what: str, exit_code: int = ExitCode.DATA) -> Iterator[None]:
    """Hold an exclusive lock on `path`; its file names the holder's pid and start time."""
    path = path.absolute()
    if path in _held:
        raise _refusal(path, what, exit_code, holder=f"this process (pid {os.getpid()})")
    descriptor = _open(path, exit_code)
    try:
        _take(descriptor, path, what, exit_code)
        _held.add(path)
        _sign(descriptor)
        _LOG.debug("holding %s", path)
        yield
    finally:
        _held.discard(path)
        os.close(descriptor)  # the kernel drops the lock with the descriptor


def holder(path: Path) -> str | None:
    """Describe the current holder of the lock `path`; none if it is free.

    Only for a process that does not hold this lock itself: closing the file would drop its own.
    """
    if not path.exists():
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return _describe(path)
    finally:
        os.close(descriptor)
    return None


def _open(path: Path, exit_code: int) -> int:
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SapoError(
            f"cannot create the lock file {path}: {error.strerror}",
            hint="correct the permissions of its folder, or name another one with SAPO_LOCKS_DIR",
            exit_code=exit_code,
        ) from error


def _take(descriptor: int, path: Path, what: str, exit_code: int) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # POSIX allows EAGAIN and EACCES
        raise _refusal(path, what, exit_code, holder=_describe(path)) from error


def _sign(descriptor: int) -> None:
    record = {"pid": os.getpid(), "started": datetime.now(UTC).isoformat(timespec="seconds")}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(record).encode() + b"\n", 0)


def _refusal(path: Path, what: str, exit_code: int, *, holder: str) -> SapoError:
    return SapoError(
        f"{what} is already in use by {holder}",
        hint=f"stop that process first (`sapo stop`), or use another one; the lock is {path}",
        exit_code=exit_code,
    )


def _describe(path: Path) -> str:
    try:
        record = json.loads(path.read_text())
        return f"another process (pid {record['pid']}, since {record['started']})"
    except (OSError, ValueError, KeyError, TypeError):  # the holder is between taking and signing
        return "another process"
