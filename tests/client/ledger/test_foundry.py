"""The contracts' own tests: units, fuzzing, and invariants against handlers that keep books."""

import os
import subprocess
from pathlib import Path

import pytest

CONTRACTS = Path(__file__).parents[3] / "contracts"
FORGE = CONTRACTS / "node_modules" / ".bin" / "forge"


def test_the_contracts_pass_their_foundry_tests() -> None:
    """Gas must be what `contracts/snapshots` says, to the unit."""
    if not FORGE.exists():
        pytest.skip("forge is not installed: `make contracts-test` needs Node.js and npm")
    done = subprocess.run(
        [FORGE, "test"],
        cwd=CONTRACTS,
        env={**os.environ, "FORGE_SNAPSHOT_CHECK": "true"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
