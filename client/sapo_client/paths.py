"""Paths on this machine: the user's folders and the layout of a data directory."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import platformdirs

from sapo_client.errors import ExitCode, SapoError
from sapo_client.full_disk import disk_full

APPLICATION = "sapo"
PRIVATE_DIRECTORY_MODE = 0o700


def _folder(variable: str, fallback: str) -> Path:
    return Path(os.environ.get(variable) or fallback).expanduser()


def config_file() -> Path:
    """Return the default configuration file (`SAPO_CONFIG` names another)."""
    return _folder("SAPO_CONFIG", f"{platformdirs.user_config_dir(APPLICATION)}/config.toml")


def keys_folder() -> Path:
    """Return the folder of named identities (`SAPO_KEYS_DIR` names another)."""
    return _folder("SAPO_KEYS_DIR", f"{platformdirs.user_config_dir(APPLICATION)}/keys")


def locks_folder() -> Path:
    """Return the folder of the locks of this user's running nodes (`SAPO_LOCKS_DIR` names another)."""
    return _folder("SAPO_LOCKS_DIR", f"{platformdirs.user_state_dir(APPLICATION)}/locks")


def reports_folder() -> Path:
    """Return the folder of bug reports (`SAPO_REPORTS_DIR` names another)."""
    return _folder("SAPO_REPORTS_DIR", f"{platformdirs.user_state_dir(APPLICATION)}/reports")


def default_data_folder() -> Path:
    """Return the default data directory."""
    return Path(platformdirs.user_data_dir(APPLICATION), "node")


def stop_command(data: Path) -> str:
    """Return the command that stops the node of a data directory."""
    return "sapo stop" if data == default_data_folder() else f"sapo stop --data-dir {quote(str(data))}"


def output_folder(folder: Path) -> Path:
    """Create a folder for the files of a command, if it is missing; return it.

    Raises:
        SapoError: it cannot be created or takes no files, or the disk is full.
    """
    try:
        _open_folder(folder, mode=0o777)
    except OSError as error:
        raise disk_full(error, folder) or SapoError(
            f"cannot write to {folder}: {error.strerror}", hint="name another place", exit_code=ExitCode.DATA
        ) from error
    return folder


def _open_folder(folder: Path, *, mode: int) -> None:
    """Create a folder if it is missing.

    Raises:
        OSError: it cannot be created, or takes no files.
    """
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        number = errno.EROFS if is_read_only else errno.EACCES
        raise OSError(number, os.strerror(number), str(folder))


@dataclass(frozen=True, slots=True)
class DataDir:
    """The layout of one node's data directory."""

    root: Path

    @property
    def lock(self) -> Path:
        """Lock file of the one node that may use this directory; states what its start waits for."""
        return self.root / "node.lock"

    @property
    def stop_request(self) -> Path:
        """Empty file with which `sapo stop` ends a start that waits."""
        return self.root / "stop-request"

    @property
    def events(self) -> Path:
        """JSON-lines event file; older parts end in `.1`, `.2`, ..."""
        return self.root / "events.jsonl"

    @property
    def log(self) -> Path:
        """Log of the node; older parts carry `.1`, `.2`, ..."""
        return self.root / "logs" / "sapo.log"

    @property
    def control_token(self) -> Path:
        """Secret token for callers of the control API, mode 0600."""
        return self.root / "control.token"

    @property
    def control_address(self) -> Path:
        """`HOST:PORT` of the running node's control API; absent while no node runs."""
        return self.root / "control.address"

    @property
    def control_port(self) -> Path:
        """Port of the last control API, which the next one takes again: an open page then goes on."""
        return self.root / "control.port"

    @property
    def status(self) -> Path:
        """The last `/status` answer, for `sapo status` while the node is down."""
        return self.root / "status.json"

    @property
    def last_error(self) -> Path:
        """The error that ended the last node, one line; absent while one runs and after any other end."""
        return self.root / "last-error"

    @property
    def config(self) -> Path:
        """The resolved configuration of the last run, JSON."""
        return self.root / "config.json"

    @property
    def manifest(self) -> Path:
        """The manifest of the swarm this directory belongs to."""
        return self.root / "manifest.json"

    @property
    def successors(self) -> Path:
        """Folder of successor documents by digest, and the list of those that this node follows."""
        return self.root / "successors"

    @property
    def swarm_settings(self) -> Path:
        """Settings of an earlier join (its link, some flags), JSON by dotted names; all others override."""
        return self.root / "swarm-settings.json"

    @property
    def database(self) -> Path:
        """SQLite file of all durable state except checkpoints."""
        return self.root / "node.sqlite"

    @property
    def address_records(self) -> Path:
        """Signed address records of nodes on the own islands, for the next start."""
        return self.root / "address-records"

    @property
    def outcomes(self) -> Path:
        """SQLite file of the outcomes of rollouts, kept longer than the events."""
        return self.root / "outcomes.sqlite"

    @property
    def outbox(self) -> Path:
        """SQLite file of the transactions that are sent to the chain."""
        return self.root / "outbox.sqlite"

    @property
    def history(self) -> Path:
        """SQLite file of the figures that the page shows over time."""
        return self.root / "history.sqlite"

    @property
    def clean_shutdown(self) -> Path:
        """Empty file that exists if the last run of the node shut down cleanly."""
        return self.root / "clean-shutdown"

    @property
    def learner(self) -> Path:
        """Folder of the learner's log and checkpoints."""
        return self.root / "learner"

    @property
    def checkpoints(self) -> Path:
        """Folder of the learner's checkpoints."""
        return self.learner / "checkpoints"

    def create(self) -> DataDir:
        """Create the directory, private to the user, if it is missing; return it.

        Raises:
            SapoError: it cannot be created or takes no files, or the disk is full.
        """
        try:
            _open_folder(self.root, mode=PRIVATE_DIRECTORY_MODE)
        except OSError as error:
            raise disk_full(error, self.root) or self.unusable(error) from error
        return self

    def unusable(self, error: OSError) -> SapoError:
        """Return the error for a directory that cannot be used."""
        return SapoError(
            f"cannot use the data directory {self.root}: {error.strerror}",
            hint="choose another one with --data-dir, or correct its permissions",
            exit_code=ExitCode.DATA,
        )
