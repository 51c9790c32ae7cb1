"""Ctrl-C while `sapo` still imports what it needs: a plain end, in a real process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED_AT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

imported = sys.argv.pop(1)

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == imported:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a shell's foreground
sys.meta_path.insert(0, Interrupt())
from sapo_client.cli.entry import main
main()
"""


@pytest.mark.parametrize("imported", ["sapo_client.cli.app", "typer", "sapo_client.errors", "pydantic"])
def test_ctrl_c_during_an_import_ends_without_a_stack(imported: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT, imported, "join", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
