"""Run the symbolic checks with halmos, then see that none of them holds for want of cases.

Usage: python run.py HALMOS. Functions named ``check_`` must pass. Those named ``reach_`` assert that a thing
never happens, and must fail: a check over calls that always revert would pass as well.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CONTRACTS = Path(__file__).parents[1]
TIMEOUT_SECONDS = 900


def outcomes(halmos: str, prefix: str) -> dict[str, int]:
    """Run the functions with this prefix; return halmos's exit code of each by name.

    Raises:
        SystemExit: halmos could not be run or found none of them.
    """
    programs = str(next(CONTRACTS.glob("node_modules/@foundry-rs/forge-*/bin"), ""))
    environment = {
        **os.environ,
        "FOUNDRY_PROFILE": "smt",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [halmos, "--function", prefix, "--loop", "3", "--forge-build-out", "out-smt"]
        done = subprocess.run(  # noqa: S603
            [*command, "--json-output", str(report)],
            cwd=CONTRACTS,
            env=environment,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if not report.exists():
            raise SystemExit(
                f"error: halmos ended with {done.returncode} and no report\nhint: see its output above"
            )
        tests = [test for tests in json.loads(report.read_text())["test_results"].values() for test in tests]
    if not tests:
        raise SystemExit(f"error: halmos found no function {prefix}\nhint: see contracts/smt")
    return {test["name"].split("(")[0]: test["exitcode"] for test in tests}


def main() -> int:
    """Return 0 if every check holds and everything that must be reachable is reached."""
    held = outcomes(sys.argv[1], "check_")
    reached = outcomes(sys.argv[1], "reach_")
    problems = [f"{name} does not hold" for name, code in held.items() if code != 0]
    problems += [f"{name} did not fail by a counterexample" for name, code in reached.items() if code != 1]
    for problem in problems:
        print(f"error: {problem}")
    print(f"{len(held)} checks, {len(reached)} of reach, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
