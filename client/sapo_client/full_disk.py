"""Detection of a full disk from errors of the operating system and of SQLite."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_verification.errors import UnusableDatabaseError

_SQLITE_FULL: Final = 13
"""``sqlite3.SQLITE_FULL``."""

_NUMBERS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no quota, and the file size limit of the process."""


def disk_full(error: BaseException, folder: Path | None) -> SapoError | None:
    """Return the ``SapoError`` for an error that a full disk caused; None if it has another cause.

    Args:
        error: of a write, or a group or another error that holds one.
        folder: in which there must be space; none if it is not known.
    """
    if not _is_of_full_disk(error):
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


def _is_of_full_disk(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_of_full_disk, error.exceptions))
    if isinstance(error, OSError):
        return error.errno in _NUMBERS
    if isinstance(error, _sqlite_errors()):
        return getattr(error, "sqlite_errorcode", None) == _SQLITE_FULL
    return error is not None and _is_of_full_disk(error.__cause__)


def _errors_of_writes() -> tuple[type[Exception], ...]:
    return (OSError, UnusableDatabaseError, ExceptionGroup, *_sqlite_errors())


def _sqlite_errors() -> tuple[type[Exception], ...]:
    """Return SQLite's error class if the module is loaded; commands that do not need it start faster."""
    sqlite3 = sys.modules.get("sqlite3")
    return () if sqlite3 is None else (sqlite3.OperationalError,)
