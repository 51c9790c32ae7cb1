"""Three readers compared for a time: ``python tests/reader/run.py --seconds 120``.

Prints its figures, and exits with 1 unless the package, the Python reference and the reader in JavaScript
agree about everything. A difference is printed with its seed and number, which name its bytes.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "protocol", "verification")]

from reader.asking import MISSING, Reader, started_reader  # noqa: E402
from reader.comparing import (  # noqa: E402
    Tally,
    compare_cases,
    compare_crowds,
    compare_documents,
    compare_questions,
)
from reader.derivations import DERIVATIONS  # noqa: E402
from reader.questions import QUESTIONS  # noqa: E402

ROUND = 20
"""Of each kind in one round, and five times as many mutated cases."""

MAX_SHOWN = 20


def main() -> int:
    """Run and return the exit status."""
    options = _options()
    if MISSING is not None:
        print(f"note: {MISSING}; the three readings are not compared", file=sys.stderr)
        return 0
    total, began, number = Tally(), time.monotonic(), 0
    with started_reader() as reader:
        while time.monotonic() - began < options.seconds:
            total.add(compare_cases(reader, options.seed, range(5 * number, 5 * (number + ROUND))))
            for compare in _kinds(reader, options.seed):
                total.add(compare(range(number, number + ROUND)))
            number += ROUND
    report = _report(total, options.seed, time.monotonic() - began)
    print(json.dumps(report, indent=2))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if total.differences else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True, help="time")
    parser.add_argument("--seed", type=int, default=0, help="names the cases")
    parser.add_argument("--json", type=Path, help="where the figures are written too")
    return parser.parse_args()


def _kinds(reader: Reader, seed: int) -> list[Callable[[range], Tally]]:
    questions = [*QUESTIONS, *DERIVATIONS]
    return [
        lambda numbers: compare_crowds(reader, seed, numbers),
        lambda numbers: compare_documents(reader, seed, numbers),
        *(lambda numbers, name=name: compare_questions(reader, seed, name, numbers) for name in questions),
    ]


def _report(total: Tally, seed: int, seconds: float) -> dict[str, Any]:
    outcomes = dict(sorted(total.outcomes.items(), key=lambda item: (-item[1], item[0])))
    return {
        "format": "sapo/readers/1",
        "seed": seed,
        "seconds": round(seconds, 1),
        "compared": total.compared,
        "differences": len(total.differences),
        "shown": total.differences[:MAX_SHOWN],
        "outcomes": outcomes,
    }


if __name__ == "__main__":
    sys.exit(main())
