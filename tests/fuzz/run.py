"""Fuzzing for a number of envelopes or a time: ``python tests/fuzz/run.py --count 1000000 --json FILE``.

Prints its figures, and exits with 1 unless there is no crash, no wrong ACCEPT, no difference between the
pipeline and the reference implementation, and no verdict that depends on order or duplication.
"""

import argparse
import resource
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "protocol", "verification")]

from fuzz.session import SESSION, Figures, play  # noqa: E402
from support.comparing_run import ComparingRun  # noqa: E402

NO_COUNT = 10**9
"""More envelopes than any run has."""


def main() -> int:
    """Run and return the exit status."""
    run, figures, number = _run(), Figures(), 0
    options = run.options
    while figures.envelopes < options.count and not run.is_over:
        play(options.seed, number, figures, min(SESSION, options.count - figures.envelopes))
        number += 1
        if number % 250 == 0:
            _progress(figures, run.seconds)
    run.write(_report(figures, options.seed, run.seconds))
    return 0 if figures.clean else 1


def _run() -> ComparingRun:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=NO_COUNT, help="envelopes")
    run = ComparingRun(parser)
    run.require_end(has_other=run.options.count != NO_COUNT)
    return run


def _progress(figures: Figures, seconds: float) -> None:
    rate = figures.envelopes / seconds
    print(f"{figures.envelopes} envelopes, {rate:.0f}/s, clean: {figures.clean}", file=sys.stderr, flush=True)


def _report(figures: Figures, seed: int, seconds: float) -> dict[str, object]:
    document: dict[str, Any] = dict(vars(figures))
    for name in ("outcomes", "rules", "mutations"):
        document[name] = dict(sorted(document[name].items(), key=lambda item: (-item[1], item[0])))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    extent = {"seconds": round(seconds, 1), "per_second": round(figures.envelopes / seconds, 1)}
    machine = {"peak_memory_mib": round(peak_mib, 1), "python": sys.version.split()[0]}
    return {"format": "sapo/fuzz/1", "seed": seed, "clean": figures.clean, **extent, **machine, **document}


if __name__ == "__main__":
    sys.exit(main())
