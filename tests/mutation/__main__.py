"""Mutate `protocol` and `verification` in one place after the other, and check that their tests fail.

Usage: PYTHONPATH=tests python -m mutation [--list] [--only REGEX] [--sample COUNT] [--seed TEXT]
           [--reach FILE] [--report FILE] [--part K/N] [--in PATH...] [--tests PATH...]

A room of the client is mutated with its own tests, since to measure all of them would take hours::

    PYTHONPATH=tests python -m mutation --in client/sapo_client/node/gossip/early.py \\
        --tests tests/client/node/gossip/test_early_rollouts.py --reach early-reach.json

The report is written after each mutant, so that a run that is stopped leaves what it found. Ends with 1 if
fewer than nine of ten are noticed, or one that ``equivalent.json`` explains. Those that are explained do not
count, nor do those that no test reaches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mutation.bench import ROOT, Bench, measure
from mutation.operators import Mutant, mutants_of

PACKAGES: Final = ("protocol/sapo_protocol", "verification/sapo_verification")
TESTS: Final = ("tests/protocol", "tests/vectors", "tests/reference", "tests/verification")

LEAST: Final = 0.9
"""Share of the mutants that the tests have to notice."""

EQUIVALENT: Final = Path(__file__).with_name("equivalent.json")
"""By name: why no test can tell the mutant from the genuine source."""


def name_of(mutant: Mutant) -> str:
    """Return the name of a mutant within the tree."""
    return f"{mutant.module.split('/', 1)[1]}:{mutant.id}"


def all_mutants(places: Sequence[str] = PACKAGES) -> Iterator[Mutant]:
    """Yield the mutants of all modules in folders, and of files."""
    for place in places:
        file = ROOT / place
        for path in [file] if file.is_file() else sorted(file.rglob("*.py")):
            yield from mutants_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """Return those that the options ask for: of a sample, those whose names hash lowest with the seed."""
    found = [mutant for mutant in all_mutants(options.places) if re.search(options.only, name_of(mutant))]
    number, parts = map(int, options.part.split("/"))
    return ranked(found, options.seed)[: options.sample][number - 1 :: parts]


def ranked(mutants: Sequence[Mutant], seed: str) -> list[Mutant]:
    """Return mutants in an order that depends on their names and a seed alone."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256((seed + name_of(mutant)).encode()).digest())


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge mutants and print those that survive; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    parser.add_argument("--only", default="", metavar="REGEX", help="those whose names it finds")
    parser.add_argument("--sample", type=int, metavar="COUNT", help="so many of them")
    parser.add_argument("--seed", default="0", help="of the sample")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="each Nth, from the Kth on")
    parser.add_argument(
        "--reach", type=Path, default=Path("mutation-reach.json"), help="which test runs what"
    )
    parser.add_argument("--report", type=Path, default=Path("mutation-report.json"))
    parser.add_argument(
        "--in", dest="places", nargs="+", default=PACKAGES, metavar="PATH", help="folders or files to mutate"
    )
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="files or folders of tests")
    options = parser.parse_args(arguments)
    mutants = chosen(options)
    if options.list:
        sys.stdout.writelines(f"{name_of(mutant)}\n" for mutant in mutants)
        return 0
    explained = json.loads(EQUIVALENT.read_text(encoding="utf-8"))
    counts, rows = Counter[str](), []
    with TemporaryDirectory(prefix="sapo-mutants-") as folder:
        bench = Bench(Path(folder), measure(options.places, options.tests, options.reach))
        for mutant in mutants:
            name = name_of(mutant)
            found, by = bench.judge(mutant)
            verdict = _EXPLAINED.get(found, found) if name in explained else found
            counts[verdict] += 1
            row = {key: getattr(mutant, key) for key in ("module", "line", "original", "replacement")}
            rows.append({"name": name, "verdict": verdict, "by": by, **row})
            options.report.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            if verdict in ("survived", "not equivalent"):
                sys.stdout.write(f"{verdict}: {_described(mutant)}\n")
                sys.stdout.flush()
    sys.stdout.write(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) + "\n")
    enough = counts["killed"] >= LEAST * (counts["killed"] + counts["survived"])
    return 0 if enough and not counts["not equivalent"] else 1


_EXPLAINED: Final = {"survived": "equivalent", "killed": "not equivalent"}
"""What the verdict on a mutant is called that no test should be able to tell from the genuine source."""


def _described(mutant: Mutant) -> str:
    before, after = (" ".join(text.split()) for text in (mutant.original, mutant.replacement))
    return f"{name_of(mutant)} ({mutant.module}:{mutant.line})\n    {before}\n -> {after}"


if __name__ == "__main__":
    sys.exit(main())
