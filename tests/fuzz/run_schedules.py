"""Fault schedules for the ledger: ``python tests/fuzz/run_schedules.py --count 1000 --json FILE``.

Prints its figures, and exits with 1 unless every record stands once, no nonce was signed for two calls and
no epoch for two roots. ``--seed`` names the first schedule: a failed one is played again by its number.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "protocol", "verification", "client")]

from fuzz.schedules import Ground, Outcome, play  # noqa: E402


def main() -> int:
    """Play and return the exit status."""
    options = _options()
    outcomes, began = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        for seed in range(options.seed, options.seed + options.count):
            outcomes.append(play(ground, seed))
            if len(outcomes) % 50 == 0:
                failed = sum(bool(outcome.findings) for outcome in outcomes)
                print(f"{len(outcomes)} schedules, {failed} failed", file=sys.stderr, flush=True)
        ground.close()
    report = _report(outcomes, options.seed, time.monotonic() - began)
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if report["failures"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="schedules")
    parser.add_argument("--seed", type=int, default=0, help="number of the first one")
    parser.add_argument("--json", type=Path, help="where the figures are written too")
    return parser.parse_args()


def _report(outcomes: list[Outcome], seed: int, seconds: float) -> dict[str, object]:
    struck: Counter[str] = Counter()
    for outcome in outcomes:
        struck.update(outcome.struck)
    failures = [
        {"seed": outcome.seed, "findings": outcome.findings} for outcome in outcomes if outcome.findings
    ]
    return {
        "seed": seed,
        "schedules": len(outcomes),
        "failed": len(failures),
        "failures": failures,
        "kills": sum(outcome.kills for outcome in outcomes),
        "replacements": sum(outcome.replacements for outcome in outcomes),
        "struck": dict(sorted(struck.items())),
        "seconds": round(seconds, 1),
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
