"""Export and import of a data directory's signing history; never while a node uses it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from sapo_client import locks
from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import DataDir
from sapo_protocol.errors import LocalProtocolError
from sapo_verification.signing.database import SigningDatabase
from sapo_verification.signing.interchange import MAX_FILE_BYTES, SigningHistory


def export_signing(data: DataDir, destination: Path) -> SigningHistory:
    """Write the marks to a new file and return them; the next start here listens before it signs.

    Raises:
        SapoError: a node runs, there is no history, or the file exists or cannot be written.
    """
    if not data.database.exists():
        raise SapoError(
            f"there is no signing history in {data.root}",
            hint="name the node's data directory with --data-dir",
            exit_code=ExitCode.DATA,
        )
    with _stopped(data):
        data.clean_shutdown.unlink(missing_ok=True)  # from now on another machine may also sign
        database = SigningDatabase(data.database)
        history = SigningHistory(database.marks(), database.approval_marks())
        _write_new(destination, history.to_json())
    return history


def import_signing(data: DataDir, source: Path) -> tuple[SigningHistory, int]:
    """Import the marks of a file, all or none; return them, and how many rose.

    Raises:
        SapoError: a node runs, the file is not a signing history, or it would lower a mark.
    """
    history = _read(source)
    with _stopped(data.create()):
        data.clean_shutdown.unlink(missing_ok=True)
        try:
            return history, SigningDatabase(data.database).raise_marks(history.marks, history.approvals)
        except LocalProtocolError as error:
            raise SapoError(
                f"{source} is refused, nothing was imported: {error}",
                hint="export again where the identity was used last, then import that file",
                exit_code=ExitCode.KEYSTORE,
            ) from error


def _stopped(data: DataDir) -> AbstractContextManager[None]:
    return locks.Lock.of_directory(data).held()


def _read(source: Path) -> SigningHistory:
    try:
        with source.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise LocalProtocolError(f"it is larger than {MAX_FILE_BYTES} bytes")
        return SigningHistory.from_json(content.decode("utf-8"))
    except OSError as error:
        raise SapoError(
            f"cannot read {source}: {error.strerror}",
            hint="export one where the identity was used: sapo keys signing export FILE",
            exit_code=ExitCode.KEYSTORE,
        ) from error
    except (LocalProtocolError, UnicodeDecodeError) as error:
        raise SapoError(
            f"{source} is refused: {error}",
            hint="export one where the identity was used: sapo keys signing export FILE",
            exit_code=ExitCode.KEYSTORE,
        ) from error


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise SapoError(
            f"cannot write {path}: {error.strerror}",
            hint="name a file that does not exist yet",
            exit_code=ExitCode.KEYSTORE,
        ) from error
