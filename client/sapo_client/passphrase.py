"""Sources of a passphrase; never the command line, never a log.

Order: the named file, the file in `SAPO_PASSPHRASE_FILE`, the systemd credential `sapo-passphrase`,
a prompt at the terminal. Without any of them the result is an error, not a wait.
"""

from __future__ import annotations

import getpass
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sapo_client.errors import ExitCode, SapoError

FILE_VARIABLE = "SAPO_PASSPHRASE_FILE"
SYSTEMD_CREDENTIAL = "sapo-passphrase"  # LoadCredential=sapo-passphrase:/etc/sapo/passphrase
MAX_PASSPHRASE_BYTES = 1024  # more than this is a wrong file, not a passphrase
HINT = (
    f"name a file with --passphrase-file or {FILE_VARIABLE}, "
    f"load the systemd credential {SYSTEMD_CREDENTIAL}, or run at a terminal"
)


@dataclass(frozen=True, slots=True)
class PassphraseSource:
    """The first available source of a passphrase, read only when one is needed."""

    file: Path | None = None

    def read(self, purpose: str) -> bytes:
        """Return the passphrase that opens an existing secret."""
        path = self._file()
        if path is not None:
            return _from_file(path)
        return _prompt(f"Passphrase for {purpose}: ")

    def read_new(self, purpose: str) -> bytes:
        """Return the passphrase for a new secret; at a terminal it is typed twice."""
        path = self._file()
        if path is not None:
            return _from_file(path)
        first = _prompt(f"New passphrase for {purpose}: ")
        if first != _prompt("The same again: "):
            raise SapoError(
                "the two passphrases differ", hint="run the command again", exit_code=ExitCode.KEYSTORE
            )
        return first

    def _file(self) -> Path | None:
        if self.file is not None:
            return self.file
        if named := os.environ.get(FILE_VARIABLE):
            return Path(named)
        if credentials := os.environ.get("CREDENTIALS_DIRECTORY"):
            credential = Path(credentials, SYSTEMD_CREDENTIAL)
            return credential if credential.is_file() else None
        return None


def _from_file(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_PASSPHRASE_BYTES + 2)
    except OSError as error:
        raise SapoError(
            f"cannot read the passphrase file {path}: {error.strerror}",
            hint=HINT,
            exit_code=ExitCode.KEYSTORE,
        ) from error
    return _checked(text.removesuffix(b"\n").removesuffix(b"\r"), str(path))


def _prompt(text: str) -> bytes:
    if not sys.stdin.isatty():
        raise SapoError(
            "a passphrase is needed, and there is no terminal to type it",
            hint=HINT,
            exit_code=ExitCode.KEYSTORE,
        )
    return _checked(getpass.getpass(text, stream=sys.stderr).encode(), "the terminal")


def _checked(passphrase: bytes, where: str) -> bytes:
    if not 0 < len(passphrase) <= MAX_PASSPHRASE_BYTES:
        raise SapoError(
            f"the passphrase from {where} is empty or longer than {MAX_PASSPHRASE_BYTES} bytes",
            hint="use one line of text; `sapo keys new --no-passphrase` makes an identity without one",
            exit_code=ExitCode.KEYSTORE,
        )
    return passphrase
