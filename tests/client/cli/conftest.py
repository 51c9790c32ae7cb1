"""The real `sapo` command as a process, in a home of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.sapo_process import SAPO, TIMEOUT_SECONDS, Run


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user without any files."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return keep | {"HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def sapo(home: dict[str, str], tmp_path: Path) -> Run:
    """Return a function that runs `sapo` without a terminal, and returns exit code, output and errors."""

    def run(*arguments: object, input: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SAPO, *map(str, arguments)],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=home | environment,
            timeout=TIMEOUT_SECONDS,
        )

    return run
