"""The contracts' own tests: units, fuzzing, and invariants against reference accounting."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONTRACTS = Path(__file__).parents[3] / "contracts"
# A mutant costs a second and a half of a core, and what comes before the first one twenty seconds.
SAMPLE = 12


def forge(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What forge said and how it ended."""
    _require_forge()
    return subprocess.run(
        ["node", "forge.mjs", *arguments],
        cwd=CONTRACTS,
        env={**os.environ, "FORGE_SNAPSHOT_CHECK": "true"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def mutants(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What the runner of the mutants said and how it ended."""
    _require_forge()
    return subprocess.run(
        ["node", "mutants.mjs", *arguments],
        cwd=CONTRACTS,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def _require_forge() -> None:
    if not list(CONTRACTS.glob("node_modules/@foundry-rs/forge-*")):
        pytest.skip("forge is not installed: `make contracts-test` needs Node.js and npm")


def test_the_contracts_pass_their_foundry_tests() -> None:
    """Gas must equal the values in `contracts/snapshots` exactly."""
    done = forge("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout


def test_a_failed_run_is_reported() -> None:
    """A launcher that swallowed how forge ends would make every test here pass."""
    assert forge("no-such-command").returncode != 0


def test_the_mutants_are_those_of_the_contracts_as_they_are() -> None:
    """Every rule that is broken by hand stands in its source; every equivalent mutant can still be made."""
    done = mutants("--list")
    assert done.returncode == 0, done.stderr
    made = {line.partition(" (src/")[0] for line in done.stdout.splitlines() if " (src/" in line}
    equivalent = json.loads((CONTRACTS / "mutation" / "equivalent.json").read_text(encoding="utf-8"))
    assert equivalent.keys() - made == set()


@pytest.mark.long
def test_a_sample_of_mutants_is_killed() -> None:
    """All of them run every night. Here each change of the contracts draws others, and all runs of one tree
    draw the same: whoever changes the contracts sees a survivor at once, and writes its test or its reason.
    """
    sources = b"".join(path.read_bytes() for path in sorted(CONTRACTS.glob("src/*.sol")))
    seed = hashlib.sha256(sources).hexdigest()
    done = mutants("--sample", str(SAMPLE), "--seed", seed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{SAMPLE} mutants: " in done.stdout


@pytest.mark.long
def test_a_surviving_mutant_fails_a_sample() -> None:
    """No test can kill this one, and its reason is hidden from the runner."""
    identity = "NodeRegistry.isLive/delete/7151b652"
    done = mutants("--quick", "--only", re.escape(identity), "--sample", "1", "--unexplained")
    assert done.returncode == 1
    assert f"SURVIVED {identity} " in done.stdout


@pytest.mark.long
def test_the_symbolic_checks_of_payments_hold() -> None:
    """Payments alone; `make contracts-smt` also breaks the contracts and asks about honest auditors."""
    _require_forge()
    halmos = Path(sys.prefix) / "halmos" / "bin" / "halmos"
    if not halmos.is_file():
        pytest.skip("halmos is not installed: `make contracts-smt` installs it")
    done = subprocess.run(
        [sys.executable, "smt/run.py", str(halmos), "--contract", "RewardsCheck", "--genuine"],
        cwd=CONTRACTS,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RewardsCheck: 5 checks, 1 of reach" in done.stdout
