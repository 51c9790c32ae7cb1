"""A swarm without a chain: nodes share and learn, beacons follow from the manifest, nothing is paid."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from shlex import quote

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding import defaults
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite


def found_without_chain(folder: Path, *, name: str, epoch_seconds: int, suite: Suite) -> Manifest:
    """Write the manifest of a new swarm, which begins now, into a folder; return it.

    Raises:
        SapoError: there is a manifest in it already, or it cannot be written (exit code 3).
    """
    manifest = Manifest(
        name=name,
        genesis_seconds=int(time.time()),
        epoch_seconds=epoch_seconds,
        suite=suite,
        limits=defaults.LIMITS,
    )
    path = folder / "manifest.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(manifest_to_json(manifest))
    except FileExistsError as error:
        raise SapoError(
            f"a swarm was founded in {folder} already, and was not changed",
            hint=f"print its link with `sapo swarm link {quote(str(path))}`, or name another folder",
            exit_code=ExitCode.CONFIG,
        ) from error
    except OSError as error:
        with suppress(OSError):  # an empty manifest would look like a founded swarm
            path.unlink(missing_ok=True)
        raise SapoError(
            f"cannot write {path}: {error.strerror}", hint="name another folder", exit_code=ExitCode.CONFIG
        ) from error
    return manifest
