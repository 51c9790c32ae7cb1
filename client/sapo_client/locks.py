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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sapo_client.errors import ExitCode, SapoError
from sapo_client.full_disk import disk_full
from sapo_client.paths import PRIVATE_DIRECTORY_MODE, DataDir, stop_command

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock, as far as the lock's file states.

    Attributes:
        name: in words.
        note: what it says of itself; empty if it says nothing.
    """

    name: str
    note: Mapping[str, Any]


_held: dict[Path, Holder] = {}

_DATA_DIR = "data_dir"
"""Field of a lock's file: the data directory of the node that holds the lock."""


class Lock:
    """An exclusive lock on a file that names its holder; who holds it may take it again with this object.

    Args:
        path: the file.
        what: the lock protects, in words.
        exit_code: of a command that finds it taken.
        node: data directory of the node that takes it; None if no node does.
    """

    def __init__(
        self, path: Path, *, what: str, exit_code: int = ExitCode.DATA, node: Path | None = None
    ) -> None:
        self._path = path.absolute()
        self._what = what
        self._exit_code = exit_code
        self._own = {} if node is None else {_DATA_DIR: str(node.absolute())}
        self._stopped_by = ""
        self._descriptor: int | None = None
        self._started = ""

    @classmethod
    def of_directory(cls, data: DataDir) -> Lock:
        """Return the lock of the one process that may use a data directory."""
        lock = cls(data.lock, what=f"data directory {data.root}", node=data.root)
        lock._stopped_by = stop_command(data.root)
        return lock

    @property
    def is_held(self) -> bool:
        """Whether it is held with this object."""
        return self._descriptor is not None

    @property
    def noted(self) -> Mapping[str, Any]:
        """The note that the holder, this process, has left in the lock."""
        return _held[self._path].note

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            SapoError: another holds it, or its file cannot be created.
        """
        if self.is_held:
            yield
            return
        path = self._path
        if path in _held:
            raise self._refusal(_held[path])
        descriptor = _open(path, self._exit_code)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:  # POSIX allows EAGAIN and EACCES
                raise self._refusal(_read(path)) from error
            self._descriptor, self._started = descriptor, datetime.now(UTC).isoformat(timespec="seconds")
            self.note({})
            _LOG.debug("holding %s", path)
            yield
        finally:
            self._descriptor = None
            _held.pop(path, None)
            os.close(descriptor)  # the kernel drops the lock with the descriptor

    def require_free(self) -> None:
        """Raise if the lock is held.

        Raises:
            SapoError: it is, and the error names the holder; or its file cannot be opened.
        """
        try:
            found = holder(self._path)
        except OSError as error:
            raise _unusable(self._path, error, self._exit_code) from error
        if found is not None:
            raise self._refusal(found)

    def note(self, note: Mapping[str, Any]) -> None:
        """Write a note of the holder to the file, beside its process id and start time, from now on.

        On a full disk the file may stay empty: the lock is held all the same.

        Args:
            note: plain values by name.
        """
        assert self._descriptor is not None, "only the holder of a lock writes a note into it"
        record = {"pid": os.getpid(), "started": self._started, **self._own, **note}
        _held[self._path] = Holder(f"this process (pid {os.getpid()})", {**self._own, **note})
        line = json.dumps(record).encode() + b"\n"
        try:
            os.pwrite(self._descriptor, line, 0)  # in place first: this takes no further space
            os.ftruncate(self._descriptor, len(line))
        except OSError as error:
            if disk_full(error, None) is None:
                raise
            os.ftruncate(self._descriptor, 0)

    def _refusal(self, holder: Holder) -> SapoError:
        node = holder.note.get(_DATA_DIR)
        stop = self._stopped_by or (stop_command(Path(node)) if isinstance(node, str) else "")
        how = f" (`{stop}`)" if stop else ""
        return SapoError(
            f"{self._what} is already in use by {holder.name}",
            hint=f"stop that process first{how}, or use another one; the lock is {self._path}",
            exit_code=self._exit_code,
        )


def lock(
    path: Path, *, what: str, exit_code: int = ExitCode.DATA, node: Path | None = None
) -> AbstractContextManager[None]:
    """Return an exclusive lock on a file, to be held; its file names the holder's pid and start time.

    Args:
        path: the file.
        what: the lock protects, in words.
        exit_code: of a command that finds it taken.
        node: data directory of the node that takes it; None if no node does.
    """
    return Lock(path, what=what, exit_code=exit_code, node=node).held()


def holder(path: Path) -> Holder | None:
    """Return the current holder of a lock; none if it is free."""
    path = path.absolute()
    if path in _held:  # closing the file would drop this process's own lock
        return _held[path]
    if not path.exists():
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return _read(path)
    finally:
        os.close(descriptor)
    return None


def _open(path: Path, exit_code: int) -> int:
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, error, exit_code) from error


def _unusable(path: Path, error: OSError, exit_code: int) -> SapoError:
    where = "--data-dir" if exit_code == ExitCode.DATA else "SAPO_LOCKS_DIR"
    return disk_full(error, path.parent) or SapoError(
        f"cannot open the lock file {path}: {error.strerror}",
        hint=f"correct the permissions of its folder, or name another one with {where}",
        exit_code=exit_code,
    )


def _read(path: Path) -> Holder:
    """Return who holds a lock that another process has taken."""
    try:
        line, _, _ = path.read_text().partition("\n")  # what follows is of a longer record before it
        record = json.loads(line)
        name = f"another process (pid {record['pid']}, since {record['started']})"
    except (OSError, ValueError, KeyError, TypeError):  # it is about to write, or the disk is full
        return Holder("another process", {})
    return Holder(name, {key: value for key, value in record.items() if key not in ("pid", "started")})
