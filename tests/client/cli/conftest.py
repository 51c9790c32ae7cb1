"""The real `sapo` command as a process, in a home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sapo_process import Run, home_in, runner


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user without any files."""
    return home_in(tmp_path)


@pytest.fixture
def sapo(home: dict[str, str], tmp_path: Path) -> Run:
    """Return a function that runs `sapo` without a terminal, and returns exit code, output and errors."""
    return runner(home, tmp_path)
