"""Static checks that belong to the suite: types and style."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _run(*arguments: str) -> None:
    if find_spec(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed (pip install sapo-swarm[dev])")
    result = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff_check() -> None:
    _run("ruff", "check")


def test_ruff_format() -> None:
    _run("ruff", "format", "--check")


def test_mypy_strict() -> None:
    _run("mypy")
