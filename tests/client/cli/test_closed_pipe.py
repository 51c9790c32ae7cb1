"""Commands whose output nobody reads to its end: real processes with real pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.sapo_process import SAPO


def without_reader(
    home: dict[str, str], folder: Path, *command: str, errors: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with a standard output, or also a standard error, whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            command,
            stdout=writer,
            stderr=writer if errors else subprocess.PIPE,
            env=home,
            cwd=folder,
            check=False,
            timeout=120,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "words", ["--help", "--version", "config show", "config schema", "config show --json"]
)
def test_a_reader_that_has_ended_is_no_error(home: dict[str, str], tmp_path: Path, words: str) -> None:
    """Long output, which is written while the command runs, and short output, which is written at its end."""
    done = without_reader(home, tmp_path, SAPO, *words.split())
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_error_without_a_reader_keeps_quiet(home: dict[str, str], tmp_path: Path) -> None:
    """It was reported as a bug, with a file."""
    done = without_reader(home, tmp_path, SAPO, "status", "--data-dir", "nowhere", errors=True)
    assert done.returncode == 141
    assert not list(tmp_path.rglob("bug-*"))


def test_another_closed_pipe_is_a_bug(home: dict[str, str], tmp_path: Path) -> None:
    """It ended the command with exit code 1 and without a word."""
    program = """
import sys
from sapo_client.cli import app
def command():
    raise BrokenPipeError(32, "Broken pipe")
app.app.command("broken")(command)
sys.argv = ["sapo", "broken"]
app.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**home, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: this is a bug in sapo: BrokenPipeError: [Errno 32] Broken pipe\n")
