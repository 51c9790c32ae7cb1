"""Files that only their owner can access: created with mode 0600 exclusively, never overwritten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sapo_client.atomic_files import force_to_disk
from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import PRIVATE_DIRECTORY_MODE


def refuse_existing(path: Path) -> None:
    """Raise early if the file exists, before a passphrase is typed; the exclusive create decides."""
    if path.exists():
        raise _already_there(path)


def write_exclusive(path: Path, content: bytes) -> None:
    """Write a new private file (mode 0600 from its creation, durable on return); never overwrite."""
    try:
        path.parent.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise _already_there(path) from error
    except OSError as error:
        raise SapoError(
            f"cannot write {path}: {error.strerror}",
            hint="name another file, or correct the permissions of the folder",
            exit_code=ExitCode.KEYSTORE,
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)  # incomplete, and it would block the next attempt
        raise SapoError(
            f"cannot write {path}: {error.strerror}", hint="free some space", exit_code=ExitCode.KEYSTORE
        ) from error
    force_to_disk(path.parent)


def read_private(path: Path, *, max_bytes: int, missing: SapoError) -> bytes:
    """Return the content of a file that only its owner can access, up to a limit.

    Raises:
        SapoError: `missing`, or unreadable, or accessible to others (exit code 4).
    """
    try:
        with path.open("rb") as stream:
            _refuse_exposed(path, stat.S_IMODE(os.fstat(stream.fileno()).st_mode))
            return stream.read(max_bytes)
    except FileNotFoundError as error:
        raise missing from error
    except OSError as error:
        raise SapoError(
            f"cannot read {path}: {error.strerror}",
            hint="name a file that you own; `sapo keys list` shows your identities",
            exit_code=ExitCode.KEYSTORE,
        ) from error


def _refuse_exposed(path: Path, mode: int) -> None:
    if mode & 0o077:
        raise SapoError(
            f"other users of this machine can read or change {path} (mode {mode:04o})",
            hint=f"chmod 600 {path}",
            exit_code=ExitCode.KEYSTORE,
        )


def _already_there(path: Path) -> SapoError:
    return SapoError(
        f"{path} exists, and keys are never overwritten",
        hint="choose another name, or move that file yourself",
        exit_code=ExitCode.KEYSTORE,
    )
