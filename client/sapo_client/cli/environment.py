"""Versions and machine data for a bug report."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sapo_client.extras import EXTRAS
from sapo_client.paths import DataDir, keys_folder
from sapo_verification.tasks.bundled import RELEASE

GIB = 1024**3
PACKAGES = (
    *("torch", "transformers", "vllm", "libp2p", "trio", "web3"),
    *("pynacl", "pydantic", "typer"),
)


def environment(config_file: Path, data: DataDir) -> dict[str, Any]:
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
        "config": str(config_file),
        "data_dir": str(data.root),
        "keys": str(keys_folder()),
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
