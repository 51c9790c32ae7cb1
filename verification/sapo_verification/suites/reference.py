"""``python -m sapo_verification.suites.reference docs/reference``: writes ``families.md`` there.

With names behind the folder, only these families are measured; the other rows of the page stay.

The page has a row for every level of every family. The last columns were measured on the machine that wrote
the page; deriving and solving every item takes minutes.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.jail.launch import environment
from sapo_verification.suites.catalogue import NAMES, REASONING_GYM, family, levels
from sapo_verification.suites.families import HASH_SEED_BOUND
from sapo_verification.suites.families.excluded import EXCLUDED
from sapo_verification.tasks.generators import Underivable, derive, solution
from sapo_verification.tasks.scorers import score

ITEMS: Final = 100
_STEP: Final = 1_000_003
"""Between seeds: neighbouring ones share items."""

DERIVED: Final = ("family", "level", "scorer", "cap, bytes", "settings")
"""The columns that the catalogue alone decides."""
MEASURED: Final = ("solved", "best constant", "median, ms", "worst, ms")

INTRODUCTION: Final = f"""# Task families

Written by `python -m sapo_verification.suites.reference docs/reference`; do not edit.

Every family that a suite can be built from, of ReasoningGYM {REASONING_GYM}: {{families}} families, in all
{{levels}} levels. `settings` are the generator's where they differ from its own defaults or make the level
(a data set has one item, so its size is always 1).

Measured over {ITEMS} items: `solved` is the share whose honest answer earns 1.0 (most of the rest have none),
`best constant` the most that any of the three most frequent honest answers earns on all of them. The last two
columns are the processor time of deriving an item, once warm, on the machine that wrote this page.

Scorers: `exact/1` wants the oracle's text. `stock/1` is ReasoningGYM's own scorer behind a strict shape, and
pays for full marks only. All others are the project's own: `verification/sapo_verification/tasks/score*.py`.

A `*` marks families whose questions depend on the hash seed; checkers run under `PYTHONHASHSEED=0`.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Measurements of one family at one level, as shares of 1 and milliseconds."""

    family: Family
    solved: float
    best_constant: float
    median_ms: float
    worst_ms: float


def measure(chosen: Family) -> Finding:
    """Return one family's figures over ``ITEMS`` items."""
    items, times = [], []
    for number in range(-1, ITEMS):
        started = time.process_time()
        try:
            item = derive(chosen, (number + 1) * _STEP)
        except Underivable:
            continue
        if number >= 0:  # the first builds the data set
            times.append(1000 * (time.process_time() - started))
            items.append((item, solution(chosen, item)))
    right = sum(score(chosen, answer, item.entry) for item, answer in items)
    frequent = Counter(answer for _, answer in items if answer is not None).most_common(3)
    best = max(sum(score(chosen, guess, item.entry) for item, _ in items) for guess, _ in frequent)
    return Finding(
        family=chosen,
        solved=right / ITEMS,
        best_constant=best / ITEMS,
        median_ms=median(times),
        worst_ms=max(times),
    )


def every_level() -> Iterator[Family]:
    """Yield the catalogue, family by family."""
    for name in sorted(NAMES):
        yield from (family(name, level) for level in levels(name))


def row(finding: Finding) -> str:
    """Return a row of the table."""
    chosen = finding.family
    mark = "*" if chosen.name in HASH_SEED_BOUND else ""
    cells = [f"{chosen.name}{mark}", chosen.level, f"`{chosen.scorer}`", str(chosen.max_completion_bytes)]
    cells += [_settings(chosen), f"{finding.solved:.2f}", f"{finding.best_constant:.2f}"]
    return _line([*cells, f"{finding.median_ms:.2f}", f"{finding.worst_ms:.1f}"])


def _settings(chosen: Family) -> str:
    config = json.loads(chosen.config)
    kept = {key: value for key, value in config.items() if key not in ("size", "render")}
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in kept.items()).replace("|", "\\|")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(rows: list[str]) -> str:
    """Return the whole page."""
    introduction = INTRODUCTION.format(families=len(NAMES), levels=len(rows))
    heads = [_line([*DERIVED, *MEASURED]), _line(["---"] * len([*DERIVED, *MEASURED]))]
    excluded = [_line(["name", "reason"]), _line(["---", "---"])]
    excluded += [_line([name, reason]) for name, reason in EXCLUDED.items()]
    title = (
        f"## Excluded\n\nThe other {len(EXCLUDED)} names that ReasoningGYM registers, each with its reason.\n"
    )
    return "\n".join([introduction, *heads, *rows, "", title, *excluded, ""])


def _key(chosen: Family) -> str:
    """Return the first two cells of a family's row."""
    return row(Finding(chosen, 0.0, 0.0, 0.0, 0.0)).partition(" | `")[0]


def _rows_without(names: Sequence[str], text: str) -> dict[str, str]:
    """Return a page's rows by their first two cells, without those of some families."""
    rows = {line.partition(" | `")[0]: line for line in text.splitlines() if " | `" in line}
    return {key: line for key, line in rows.items() if key.strip("| *").split()[0].rstrip("*") not in names}


def main(arguments: list[str]) -> int:
    """Write the page into a folder; return the exit status."""
    if not arguments:
        print("usage: python -m sapo_verification.suites.reference FOLDER [FAMILY...]", file=sys.stderr)
        return 2
    if unknown := [name for name in arguments[1:] if name not in NAMES]:
        print(f"error: there is no task family {' or '.join(map(repr, unknown))}", file=sys.stderr)
        print("hint: add its FamilySpec in verification/sapo_verification/suites/families/", file=sys.stderr)
        return 2
    if os.environ.get("PYTHONHASHSEED") != "0":  # items are those of the checkers, who run under it
        again = [sys.executable, "-m", "sapo_verification.suites.reference", *arguments]
        return subprocess.run(again, env=environment(), check=False).returncode  # noqa: S603 - ourselves
    file, names = Path(arguments[0], "families.md"), arguments[1:]
    kept = _rows_without(names, file.read_text("utf-8")) if names else {}
    text = page([kept.get(_key(each)) or row(measure(each)) for each in every_level()])
    file.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
