"""Finding, reading and keeping the manifest of the swarm that a node joins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sapo_client import extras
from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError, later_hint
from sapo_client.full_disk import disk_full
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.paths import DataDir
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_verification.suites.catalogue import SuiteMismatch, check_suite

ALONE: Final = "alone"
"""Name of the manifest of a node that trains alone."""


_MANIFEST_HINT: Final = (
    "ask whoever runs the swarm for its manifest file or its link (sapo join 'sapo://...'), or found one:"
    " sapo swarm new FOLDER"
)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file.

    Raises:
        SapoError: there is no file, or it is not a valid manifest.
    """
    try:
        return manifest_from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        inner = path / "manifest.json"
        raise SapoError(
            f"cannot read the manifest {path}: {error.strerror}",
            hint=f"name the file in it: {inner}" if inner.is_file() else _MANIFEST_HINT,
            exit_code=ExitCode.CONFIG,
        ) from error
    except (LocalProtocolError, UnicodeDecodeError) as error:
        raise SapoError(
            f"{path} is not a manifest: {error}",
            hint=later_hint(error) or "ask whoever runs the swarm for the file again; it must not be edited",
            exit_code=ExitCode.CONFIG,
        ) from error


def settle_manifest(chosen: Path | None, data: DataDir) -> Manifest:
    """Store and return the manifest to use: the one given, or the one that the data directory belongs to.

    Raises:
        SapoError: neither is there, or they belong to different swarms.
    """
    if chosen is None and not data.manifest.exists():
        raise _no_swarm()
    manifest = read_manifest(chosen or data.manifest)
    take_manifest(manifest, data, source=str(chosen))
    return SuccessorFolder(data.successors).apply(manifest)


def kept_manifest(data: DataDir) -> Manifest:
    """Return the manifest of a data directory's swarm, with the successors that its node follows.

    Raises:
        SapoError: there is none, or it cannot be read.
    """
    return SuccessorFolder(data.successors).apply(read_manifest(data.manifest))


def take_manifest(manifest: Manifest, data: DataDir, *, source: str) -> None:
    """Store the manifest of a data directory, which must belong to no other swarm.

    Args:
        source: where the manifest was read from, for the error message.

    Raises:
        SapoError: the directory belongs to another swarm.
    """
    kept = read_manifest(data.manifest) if data.manifest.exists() else manifest
    if kept.swarm_id != manifest.swarm_id and is_alone(kept):
        _leave_alone(data)  # the policy that was trained alone is kept for the swarm
    elif kept.swarm_id != manifest.swarm_id:
        raise SapoError(
            f"{data.root} belongs to another swarm than {source}",
            hint="give this swarm a directory of its own with --data-dir",
            exit_code=ExitCode.CONFIG,
        )
    keep_manifest(manifest, data)


def settle_alone(data: DataDir, make: Callable[[], Manifest]) -> None:
    """Give a data directory a manifest of its own, unless it has one.

    Args:
        make: returns a new manifest for one node.

    Raises:
        SapoError: the directory belongs to a swarm (exit code 3).
    """
    if not data.manifest.exists():
        keep_manifest(make(), data)
    elif not is_alone(read_manifest(data.manifest)):
        raise SapoError(
            f"{data.root} belongs to a swarm, so it cannot train alone",
            hint="name another directory with --data-dir, or leave out --alone",
            exit_code=ExitCode.CONFIG,
        )


def keep_manifest(manifest: Manifest, data: DataDir) -> None:
    """Store the manifest of a data directory atomically, since a truncated one would make it unusable.

    Raises:
        SapoError: it cannot be written.
    """
    text = manifest_to_json(manifest)
    try:
        if data.manifest.exists() and data.manifest.read_text(encoding="utf-8") == text:
            return  # so that what only reads works on a disk that takes no files
        write_atomically(data.manifest, text)
    except OSError as error:
        raise disk_full(error, data.root) or data.unusable(error) from error


def is_alone(manifest: Manifest) -> bool:
    """Whether a manifest is that of a node that trains alone."""
    return manifest.name == ALONE and not manifest.has_chain and not manifest.bootstrap


def _leave_alone(data: DataDir) -> None:
    """Rename the database of a node that trained alone, which is of no use in a swarm."""
    for ending in ("", "-wal", "-shm"):
        part = data.root / f"{data.database.name}{ending}"
        if part.exists():
            part.rename(data.root / f"{ALONE}-{part.name}")


def require_manifest(chosen: Path | None, data: DataDir) -> Manifest:
    """Return the manifest that ``settle_manifest`` would use, without changing anything.

    Raises:
        SapoError: there is none, or it cannot be read.
    """
    if chosen is None and not data.manifest.exists():
        raise _no_swarm()
    manifest = read_manifest(chosen or data.manifest)
    is_kept = data.manifest.exists() and read_manifest(data.manifest).swarm_id == manifest.swarm_id
    return SuccessorFolder(data.successors).apply(manifest) if is_kept else manifest


def _no_swarm() -> SapoError:
    return SapoError(
        "no swarm to join: no manifest was named, and this data directory belongs to none",
        hint="name it by a link (sapo join LINK) or with --manifest FILE, start one on this machine with"
        " `sapo testnet up`, or train without a swarm: --alone",
        exit_code=ExitCode.CONFIG,
    )


class TasksUnknown(SapoError):
    """The tasks could not be derived, perhaps because the machine is too busy; a later attempt may
    succeed."""

    transient = True


def require_same_suite(manifest: Manifest) -> None:
    """Raise unless this installation derives the swarm's tasks.

    Raises:
        TasksUnknown: the jail did not derive them in time, or does not work here.
        SapoError: its tasks would differ from those of other nodes, or an extra that they need is missing.
    """
    extras.require_families([each.name for each in manifest.suite.families], exit_code=ExitCode.CONFIG)
    try:
        check_suite(manifest.suite)
    except SuiteMismatch as error:
        raise SapoError(
            f"this installation derives other tasks than the swarm: {error}",
            hint=error.hint,
            exit_code=ExitCode.CONFIG,
        ) from error
    except LocalProtocolError as error:
        raise TasksUnknown(
            f"the swarm's tasks cannot be derived: {error}",
            hint="if this machine is busy, try again later; `sapo doctor` says whether the jail works here",
            exit_code=ExitCode.VERIFICATION,
        ) from error
