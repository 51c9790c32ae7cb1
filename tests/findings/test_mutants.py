"""The finding that mutated contracts pass their own tests: five mutants that passed on eae0a53.

The same rules are broken in either tree; where a rule stands in other words, both are given.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

CONTRACTS: Final = Path(__file__).parents[2] / "contracts"

pytestmark = pytest.mark.long


Change = tuple[str, str, str]
"""A contract, what stands there once, and what takes its place."""

MUTANTS: Final[dict[str, tuple[Change, ...]]] = {
    "one signer counts several times": (
        ("EpochLedger", "if (signer <= previous) revert", "if (signer < previous) revert"),
    ),
    "a final epoch is posted again": (
        ("EpochLedger", "if (root.epoch < next) revert EpochNotIncreasing(root.epoch, next);", ""),
    ),
    "a bond leaves without waiting for the window": (
        ("EpochLedger", "terms.challengeSeconds + 2 * terms.epochSeconds", "2 * terms.epochSeconds"),
    ),
    "surplus values count": (
        (
            "FraudVerifier",
            "(accounts.length != values.length) revert WrongLeaves();",
            "(false) revert WrongLeaves();",
        ),
        ("SumTree", "if (place.value != 0) revert BadPath();", ""),
    ),
    "forged leaves convict": (
        ("FraudVerifier", "_requireLeaves(root.contributionRoot, points.accounts, points.values);", ""),
        ("FraudVerifier", "if (found == root) return value;", "return value;"),
    ),
}
"""Each rule as it stands on eae0a53, or as it stands today where the words differ."""


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the contracts and their tests."""
    if not list(CONTRACTS.glob("node_modules/@foundry-rs/forge-*")):
        pytest.skip("forge is not installed: `make contracts-test` needs Node.js and npm")
    copy = tmp_path_factory.mktemp("mutants") / "contracts"
    shutil.copytree(CONTRACTS, copy, ignore=shutil.ignore_patterns("node_modules", "out", "cache"))
    (copy / "node_modules").symlink_to((CONTRACTS / "node_modules").resolve())
    return copy


@pytest.mark.parametrize("name", MUTANTS)
def test_the_contracts_own_tests_detect_each_mutant(name: str, contracts: Path) -> None:
    standing = [
        (contracts / "src" / f"{file}.sol", before, after)
        for file, before, after in MUTANTS[name]
        if (contracts / "src" / f"{file}.sol").exists()
        and (contracts / "src" / f"{file}.sol").read_text(encoding="utf-8").count(before) == 1
    ]
    path, before, after = standing[0]
    genuine = path.read_text(encoding="utf-8")
    path.write_text(genuine.replace(before, after), encoding="utf-8")
    done = subprocess.run(
        ["node", "forge.mjs", "test", "--fail-fast"],
        cwd=contracts,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    path.write_text(genuine, encoding="utf-8")
    assert "Compiler run failed" not in done.stdout, done.stdout
    survives = done.returncode == 0 and "[FAIL" not in done.stdout
    assert not survives, "the contracts' own tests pass although the rule is broken"
