"""Three readers compared for a time: ``python tests/reader/run.py --seconds 120``.

Prints its figures, and exits with 1 unless the package, the Python reference and the reader in JavaScript
agree about everything. A difference is printed with its seed and number, which name its bytes.
"""

import argparse
import sys
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
from support.comparing_run import ComparingRun  # noqa: E402

ROUND = 20
"""Of each kind in one round, and five times as many mutated cases."""

MAX_SHOWN = 20


def main() -> int:
    """Run and return the exit status."""
    run = ComparingRun(argparse.ArgumentParser(description=__doc__))
    run.require_end()
    seed = run.options.seed
    if MISSING is not None:
        print(f"note: {MISSING}; the three readings are not compared", file=sys.stderr)
        return 0
    total, number = Tally(), 0
    with started_reader() as reader:
        while not run.is_over:
            total.add(compare_cases(reader, seed, range(5 * number, 5 * (number + ROUND))))
            for compare in _kinds(reader, seed):
                total.add(compare(range(number, number + ROUND)))
            number += ROUND
    run.write(_report(total, seed, run.seconds))
    return 1 if total.differences else 0


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
