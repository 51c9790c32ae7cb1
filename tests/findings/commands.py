"""The command line for the tests of findings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from sapo_client.cli.app import app

LEDGER_EXIT: Final = 6
"""Exit code of a chain, or contracts, that are not what they should be."""


def invoke(*words: str) -> tuple[int, str]:
    """Run a command; return its exit code, which is 0 for an unforeseen exception, and its output."""
    done = CliRunner().invoke(app, list(words))
    code = int(getattr(done.exception, "exit_code", 0))
    return code, done.output + f"\n{done.exception} {getattr(done.exception, 'hint', '')}"


def deploy(folder: Path, url: str, key: Path) -> tuple[int, str]:
    """Run `sapo testnet deploy`."""
    return invoke("testnet", "deploy", str(folder), "--rpc", url, "--key", str(key), "--yes")
