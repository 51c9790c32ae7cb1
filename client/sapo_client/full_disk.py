"""Detection of a full disk from errors of the operating system and of SQLite."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_verification.errors import UnusableDatabaseError

_SQLITE_FULL: Final = 13
"""``sqlite3.SQLITE_FULL``."""

_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, and the file size limit of the process."""

_SQLITE_CANNOT_OPEN: Final = 14
"""``sqlite3.SQLITE_CANTOPEN``, for permissions as for a disk that takes no further file."""


_PROBE_BYTES: Final = 2**20
"""More than what one commit of a node's databases usually writes."""


def disk_full(error: BaseException, folder: Path | None) -> SapoError | None:
    """Return the ``SapoError`` for an error that a full disk caused; None if it has another cause.

    Args:
        error: of a write, or a group or another error that holds one.
        folder: in which there must be space; none if it is not known.
    """
    if not _is_of_full_disk(error, folder):
        return None
    named = "the data directory, or where this command writes" if folder is None else str(folder)
    return SapoError(
        f"the disk is full: free space in {named}",
        hint="a running node goes on by itself once there is space; what has ended is started again",
        exit_code=ExitCode.DATA,
        transient=True,
        finding="disk_full",
    )


@contextmanager
def told_of_full_disk(folder: Path | None) -> Iterator[None]:
    """Replace an error that a full disk caused by the ``SapoError`` for the user.

    Args:
        folder: as in ``disk_full``.

    Raises:
        SapoError: the disk is full.
    """
    try:
        yield
    except _errors_of_writes() as error:
        if (full := disk_full(error, folder)) is None:
            raise
        raise full from error


def has_space(folder: Path) -> bool:
    """Whether a folder takes a file of some size: its disk is no longer full, nor the quota used up."""
    try:
        with TemporaryFile(dir=folder, buffering=0) as probe:
            return probe.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES
    except OSError:
        return False


def _is_of_full_disk(error: BaseException, folder: Path | None) -> bool:
    return any(_is_full_disk(each, folder) for each in _with_causes(error))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors of groups and the causes, each once: an error may be in its own cause."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
        if each.__cause__ is not None:
            waiting.append(each.__cause__)


def _is_full_disk(error: BaseException, folder: Path | None) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    if isinstance(error, _sqlite_errors()):
        code = getattr(error, "sqlite_errorcode", None)
        return code == _SQLITE_FULL or (code == _SQLITE_CANNOT_OPEN and _takes_no_file(folder))
    return False


def _takes_no_file(folder: Path | None) -> bool:
    """Whether a folder's file system has no block or no place for a file left, as far as it says so."""
    if folder is None or not folder.exists():
        return False
    disk = os.statvfs(folder)
    counts_files = disk.f_files > 0  # some make places for files as they need them
    return disk.f_bavail == 0 or (counts_files and disk.f_favail == 0)


def _errors_of_writes() -> tuple[type[Exception], ...]:
    return (OSError, UnusableDatabaseError, ExceptionGroup, *_sqlite_errors())


def _sqlite_errors() -> tuple[type[Exception], ...]:
    """Return SQLite's error class if the module is loaded; commands that do not need it start faster."""
    sqlite3 = sys.modules.get("sqlite3")
    return () if sqlite3 is None else (sqlite3.OperationalError,)
