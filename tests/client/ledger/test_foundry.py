"""The contracts' own tests: units, fuzzing, and invariants against handlers that keep books."""

import json
import os
import subprocess
from pathlib import Path

import pytest

CONTRACTS = Path(__file__).parents[3] / "contracts"


def forge(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What forge said and how it ended."""
    if not list(CONTRACTS.glob("node_modules/@foundry-rs/forge-*")):
        pytest.skip("forge is not installed: `make contracts-test` needs Node.js and npm")
    return subprocess.run(
        ["node", "forge.mjs", *arguments],
        cwd=CONTRACTS,
        env={**os.environ, "FORGE_SNAPSHOT_CHECK": "true"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_the_contracts_pass_their_foundry_tests() -> None:
    """Gas must be what `contracts/snapshots` says, to the unit."""
    done = forge("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout


def test_a_run_that_fails_is_told() -> None:
    """A launcher that swallowed how forge ends would make every test here pass."""
    assert forge("no-such-command").returncode != 0


def test_the_mutants_are_those_of_the_contracts_as_they_are() -> None:
    """Every rule that is broken by hand stands in its source; every equivalent mutant can still be made."""
    if not list(CONTRACTS.glob("node_modules/@foundry-rs/forge-*")):
        pytest.skip("forge is not installed: `make contracts-test` needs Node.js and npm")
    done = subprocess.run(
        ["node", "mutants.mjs", "--list"],
        cwd=CONTRACTS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = {line.partition(" (src/")[0] for line in done.stdout.splitlines() if " (src/" in line}
    equivalent = json.loads((CONTRACTS / "mutation" / "equivalent.json").read_text(encoding="utf-8"))
    assert equivalent.keys() - made == set()
