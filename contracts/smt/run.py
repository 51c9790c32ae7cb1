"""Run the symbolic checks with halmos, and see that none of them holds for want of cases.

Usage: python run.py HALMOS [--contract NAME] [--genuine]

Functions named ``check_`` must hold. Those named ``reach_`` assert that a thing never happens, and must fail
by a counterexample: a check over calls that always revert would hold as well. Then the contracts are broken
in one place after the other, and the check that is about this place must fail. ``--genuine`` leaves that out.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CONTRACTS = Path(__file__).parents[1]
COPIED = ("src", "smt", "foundry.toml", "solc.mjs", "node_modules")
TIMEOUT_SECONDS = 1_200
HOLDS, COUNTEREXAMPLE = 0, 1


@dataclass(frozen=True)
class Broken:
    """A rule of a source that is broken, and the check that must notice."""

    contract: str
    check: str
    source: str
    original: str
    replacement: str


BROKEN = [
    Broken(
        "RewardsCheck",
        "check_a_claim_keeps_paid_below_granted",
        "RewardDistributor.sol",
        "if (paid > grantedPoints) revert OverGranted(paid, grantedPoints);",
        "",
    ),
    Broken(
        "RewardsCheck",
        "check_a_grant_keeps_paid_below_granted",
        "RewardDistributor.sol",
        "grantedPoints += points.toUint96();",
        "grantedPoints += uint96(points);",
    ),
    Broken(
        "HonestAuditorCheck",
        "check_no_signatures_convict_an_honest_auditor",
        "FraudVerifier.sol",
        "a.epoch != b.epoch || ",
        "",
    ),
]


def outcomes(folder: Path, halmos: str, prefix: str, contract: str) -> dict[str, int]:
    """Run a contract's functions with this prefix; return halmos's exit code of each by name.

    Raises:
        SystemExit: halmos could not be run.
    """
    programs = str(next(folder.glob("node_modules/@foundry-rs/forge-*/bin"), ""))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},  # halmos has its own
        "VIRTUAL_ENV": str(Path(halmos).absolute().parents[1]),  # where it looks for its solver
        "FOUNDRY_PROFILE": "smt",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    with tempfile.TemporaryDirectory() as reports:
        report = Path(reports) / "report.json"
        selection = [
            "--contract",
            contract,
            "--function",
            prefix,
            "--early-exit",
            "--solver-timeout-assertion",
            "0",
        ]
        done = subprocess.run(  # noqa: S603
            [halmos, *selection, "--loop", "3", "--forge-build-out", "out-smt", "--json-output", str(report)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if not report.exists():
            raise SystemExit(
                f"{done.stdout}{done.stderr}\nerror: halmos ended with {done.returncode} and no report"
            )
        results = json.loads(report.read_text(encoding="utf-8"))["test_results"].values()
    return {test["name"].partition("(")[0]: test["exitcode"] for tests in results for test in tests}


def genuine(halmos: str, contract: str) -> list[str]:
    """Return what is wrong with the checks of the contracts as they are."""
    held = outcomes(CONTRACTS, halmos, "check_", contract)
    problems = [f"{name} does not hold" for name, code in held.items() if code != HOLDS]
    reached = outcomes(CONTRACTS, halmos, "reach_", contract) if contract == "RewardsCheck" else {}
    problems += [
        f"{name} did not fail by a counterexample" for name, code in reached.items() if code != COUNTEREXAMPLE
    ]
    print(f"{contract}: {len(held)} checks, {len(reached)} of reach")
    return problems if held else [f"{contract} has no checks"]


def unnoticed(halmos: str, broken: Broken) -> list[str]:
    """Return what is wrong with a check of contracts that are broken on purpose."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for entry in COPIED:
            source = CONTRACTS / entry
            if entry == "node_modules":
                (folder / entry).symlink_to(source.resolve())
            elif source.is_dir():
                shutil.copytree(source, folder / entry)
            else:
                shutil.copy(source, folder / entry)
        path = folder / "src" / broken.source
        text = path.read_text(encoding="utf-8")
        if text.count(broken.original) != 1:
            return [f"{broken.source} does not hold once: {broken.original}"]
        path.write_text(text.replace(broken.original, broken.replacement), encoding="utf-8")
        found = outcomes(folder, halmos, broken.check, broken.contract)
    is_noticed = set(found.values()) == {COUNTEREXAMPLE}
    print(f"{broken.check} {'notices' if is_noticed else 'does not notice'}: {broken.original}")
    return [] if is_noticed else [f"{broken.check} does not notice: {broken.original}"]


def main() -> int:
    """Return 0 if every check holds, can fail, and what must be reachable is reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("halmos", help="the program")
    contracts = sorted({broken.contract for broken in BROKEN})
    parser.add_argument("--contract", choices=contracts, help="only this one's checks")
    parser.add_argument("--genuine", action="store_true", help="only the contracts as they are")
    arguments = parser.parse_args()
    chosen = [arguments.contract] if arguments.contract else contracts
    problems = [problem for contract in chosen for problem in genuine(arguments.halmos, contract)]
    for broken in [] if arguments.genuine else BROKEN:
        if broken.contract in chosen:
            problems += unnoticed(arguments.halmos, broken)
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
