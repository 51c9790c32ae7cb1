"""Finding, reading and keeping the manifest of the swarm that a node joins."""

from __future__ import annotations

from pathlib import Path

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.paths import DataDir
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_verification.suites.catalogue import SuiteMismatch, check_suite


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file.

    Raises:
        SapoError: there is no file, or it is no valid manifest.
    """
    try:
        return manifest_from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SapoError(
            f"cannot read the manifest {path}: {error.strerror}",
            hint="ask whoever runs the swarm for its manifest file, or start a swarm: sapo testnet up",
            exit_code=ExitCode.CONFIG,
        ) from error
    except (LocalProtocolError, UnicodeDecodeError) as error:
        raise SapoError(
            f"{path} is no manifest: {error}",
            hint="ask whoever runs the swarm for the file again; it must not be edited",
            exit_code=ExitCode.CONFIG,
        ) from error


def settle_manifest(chosen: Path | None, data: DataDir) -> Manifest:
    """Store and return the manifest to use: the one given, or the one that the data directory belongs to.

    Raises:
        SapoError: neither is there, or they belong to different swarms.
    """
    if chosen is None and not data.manifest.exists():
        raise SapoError(
            "no swarm to join: no manifest was named, and this data directory belongs to none",
            hint="name one with --manifest FILE, or start a swarm on this machine: sapo testnet up",
            exit_code=ExitCode.CONFIG,
        )
    manifest = read_manifest(chosen or data.manifest)
    if data.manifest.exists() and read_manifest(data.manifest).swarm_id != manifest.swarm_id:
        raise SapoError(
            f"{data.root} belongs to another swarm than {chosen}",
            hint="give this swarm a directory of its own with --data-dir",
            exit_code=ExitCode.CONFIG,
        )
    scratch = data.manifest.with_suffix(
        ".new"
    )  # with an incomplete one the directory could not be used any more
    scratch.write_text(manifest_to_json(manifest), encoding="utf-8")
    scratch.replace(data.manifest)
    return manifest


def require_same_suite(manifest: Manifest) -> None:
    """Raise unless this installation derives the swarm's tasks.

    Raises:
        SapoError: its tasks would differ from those of other nodes, or an extra is missing that derives them.
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
