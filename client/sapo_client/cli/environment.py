"""Versions and machine data, and the file that a person sends when `sapo` fails by a bug."""

from __future__ import annotations

import json
import os
import platform
import sys
import traceback
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sapo_client.extras import EXTRAS
from sapo_client.logs import without_secrets
from sapo_client.paths import (
    PRIVATE_DIRECTORY_MODE,
    DataDir,
    config_file,
    default_data_folder,
    keys_folder,
    reports_folder,
)
from sapo_client.units import GIB
from sapo_verification.tasks.bundled import RELEASE

PACKAGES = (
    *("torch", "transformers", "vllm", "libp2p", "trio", "web3"),
    *("pynacl", "pydantic", "typer"),
)


def environment(file: Path, data: DataDir) -> dict[str, Any]:
    """Return versions and machine data; no secrets, no addresses, no values of variables."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "sapo": _installed("sapo-swarm"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory / GIB, 1),
        "packages": {
            **{package: _installed(package) for package in PACKAGES},
            "reasoning-gym": f"{RELEASE} (bundled)",
        },
        "extras": {extra.name: not extra.missing() for extra in EXTRAS},
        "variables": sorted(name for name in os.environ if name.startswith("SAPO_")),
        "config": str(file),
        "data_dir": str(data.root),
        "keys": str(keys_folder()),
    }


def write_bug_report(error: BaseException) -> Path:
    """Write the error, its stack, the command and this machine's data to a new file; return its path.

    Values of options are left out, for they may be secret; of URLs only scheme, host and port are kept.

    Raises:
        OSError: the file cannot be written.
    """
    now = datetime.now(UTC)
    folder = reports_folder()
    folder.mkdir(mode=PRIVATE_DIRECTORY_MODE, parents=True, exist_ok=True)
    path = folder / f"bug-{now:%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    names = [word.partition("=")[0] for word in sys.argv[1:] if word.startswith("-") or word.isalpha()]
    parts = (
        f"{now.isoformat(timespec='seconds')}  sapo {' '.join(names)}",
        "".join(traceback.format_exception(error)),
        json.dumps(environment(config_file(), DataDir(default_data_folder())), indent=2),
    )
    path.write_text(without_secrets("\n\n".join(parts)) + "\n", encoding="utf-8")
    return path


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
