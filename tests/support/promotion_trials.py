"""Scripted candidates against the promotion test: which are promoted, when, and what many promotions take.

`PYTHONPATH=$PYTHONPATH:tests python -m support.promotion_trials --seeds 200` prints both tables of the
decision (docs/adr/learner-promotion.md), `--row "one 0.4"` the rows of the first one whose names hold a text.
A candidate is right on each task with a given chance, alike with its policy on a part of the tasks.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median_low
from typing import Final

import trio

from sapo_client.node.training.promotion import Promotion
from sapo_client.observe.events import EventLog
from sapo_protocol.tasks import Task
from sapo_verification.jail.messages import Checked

TASKS: Final = 64
ROUNDS: Final = 60
ALIKE: Final = 0.7
"""Part of the tasks on which both are right or wrong together, as of a policy and its canary's shadow."""

Chances = Sequence[tuple[float, float]]
"""By family: how often the policy is right, and how often its candidate."""

ROWS: Final[dict[str, Chances]] = {
    "5 families: one 0.8 and 0, two learned to 0.8, two kept": [(0.8, 0), *[(0, 0.8)] * 2, *[(0.8, 0.8)] * 2],
    "5 families: one 0.8 and 0.3, two learned to 0.8, two kept": [
        (0.8, 0.3),
        *[(0, 0.8)] * 2,
        *[(0.8, 0.8)] * 2,
    ],
    "5 families: one 0.5 and 0, two learned to 0.8, two kept": [(0.5, 0), *[(0, 0.8)] * 2, *[(0.8, 0.8)] * 2],
    "5 families: one 0.4 and 0.1, two learned to 0.8, two kept": [
        (0.4, 0.1),
        *[(0, 0.8)] * 2,
        *[(0.8, 0.8)] * 2,
    ],
    "5 families: one 0.35 and 0.05, two learned to 0.8, two kept": [
        (0.35, 0.05),
        *[(0, 0.8)] * 2,
        *[(0.8, 0.8)] * 2,
    ],
    "5 families: one 0.3 and 0, two learned to 0.8, two kept": [(0.3, 0), *[(0, 0.8)] * 2, *[(0.8, 0.8)] * 2],
    "5 families: one 0.2 kept, two learned to 0.8, two kept": [
        (0.2, 0.2),
        *[(0, 0.8)] * 2,
        *[(0.8, 0.8)] * 2,
    ],
    "30 families: one 0.8 and 0, five learned to 0.8, the others kept": [
        (0.8, 0),
        *[(0, 0.8)] * 5,
        *[(0.8, 0.8)] * 24,
    ],
    "5 families: two 0.83 and 0.72, three learned to 0.5": [*[(0.83, 0.72)] * 2, *[(0, 0.5)] * 3],
    "5 families: two 0.83 kept, three learned to 0.1": [*[(0.83, 0.83)] * 2, *[(0, 0.1)] * 3],
    "5 families: two 0.35 kept, three from 0.35 to 0.6": [*[(0.35, 0.35)] * 2, *[(0.35, 0.6)] * 3],
    "30 families: five learned to 0.8, the others 0.5 and 0.48": [*[(0, 0.8)] * 5, *[(0.5, 0.48)] * 25],
    "30 families: five learned to 0.8, the others 0.35 kept": [*[(0, 0.8)] * 5, *[(0.35, 0.35)] * 25],
    "30 families: five learned to 0.8, the others 0.2 kept": [*[(0, 0.8)] * 5, *[(0.2, 0.2)] * 25],
    "30 families: one learned to 0.9, the others 0.8 kept": [(0, 0.9), *[(0.8, 0.8)] * 29],
}


class Posed:
    """Checkers of tasks without a question; the answer says whether it is right."""

    def __init__(self) -> None:
        self.families: list[int] = []

    async def prompt(self, task: Task) -> str:
        """Remember the task's family."""
        self.families.append(task.family)
        return ""

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return the rewards."""
        return Checked("", tuple(float(text == b"right") for text in completions))


class Scripted:
    """A policy and a candidate that are right by chance.

    Attributes:
        chances: by family.
        promoted: number of promotions.
    """

    def __init__(self, posed: Posed, chances: Chances, alike: float, seed: int) -> None:
        self.chances = chances
        self.promoted = 0
        self._posed = posed
        self._alike = alike
        self._rng = random.Random(seed)

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return the answers of both."""
        policy, candidate = [], []
        for family in self._posed.families[-len(prompts) :]:
            one = self._rng.random()
            two = one if self._rng.random() < self._alike else self._rng.random()
            before, after = self.chances[family]
            policy.append(b"right" if one < before else b"wrong")
            candidate.append(b"right" if two < after else b"wrong")
        return tuple(policy), tuple(candidate)

    async def promote(self) -> None:
        """Count a promotion."""
        self.promoted += 1


class Trial:
    """One learner, whose candidates are compared by the product's own code.

    Attributes:
        promotion: that code.
    """

    def __init__(self, chances: Chances, alike: float, seed: int, folder: Path) -> None:
        posed = Posed()
        self.learner = Scripted(posed, chances, alike, seed)
        self.promotion = Promotion(
            self.learner,
            posed,
            EventLog(folder / "events.jsonl", clock=lambda: 0.0),
            families=len(chances),
            tasks=TASKS,
            rng=random.Random(seed),
        )

    async def rounds(self, most: int) -> int | None:
        """Return after how many rounds the candidate was promoted; None if it was not."""
        before = self.learner.promoted
        for number in range(1, most + 1):
            await self.promotion.after(number, has_candidate=True)
            if self.learner.promoted > before:
                await self.promotion.after(number, has_candidate=False)
                return number
        await self.promotion.after(most, has_candidate=False)
        return None


async def promoted(chances: Chances, alike: float, seeds: int, folder: Path) -> str:
    """Return the share of candidates that are promoted, and the median round of those."""
    found = [await Trial(chances, alike, seed, folder).rounds(ROUNDS) for seed in range(seeds)]
    rounds = [each for each in found if each is not None]
    return f"{len(rounds) / seeds:.0%}, {median_low(rounds)}" if rounds else "none"


async def left(kept: float, promotions: int, seed: int, folder: Path) -> float:
    """Return the level of a family, 0.8 at first, of which each of so many candidates keeps a part.

    Each one gains as much in four other families as it needs to be better: a quarter, which is forgotten
    again before the next one, at nobody's gain but the attacker's.
    """
    level = 0.8
    others = [(0.2, 0.5)] * 4
    trial = Trial([(level, level), *others], ALIKE, seed, folder)
    for _ in range(promotions):
        trial.learner.chances = [(level, kept * level), *others]
        if await trial.rounds(20) is not None:
            level *= kept
    return level


async def report(seeds: int, folder: Path, row: str = "") -> None:
    """Print both tables; with a text only the rows of the first one whose names hold it."""
    for line in ("| policy and candidate are right | drawn apart | alike on 70 % |", "| --- | --- | --- |"):
        sys.stdout.write(line + "\n")
    for name, chances in ROWS.items():
        if row not in name:
            continue
        cells = [await promoted(chances, alike, seeds, folder) for alike in (0.0, ALIKE)]
        sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
        sys.stdout.flush()
    if row:
        return
    sys.stdout.write("\n| each keeps | left of 0.8 after 1, 2, 4 and 8 candidates |\n| --- | --- |\n")
    for kept in (0.9, 0.8, 0.7, 0.6, 0.55):
        levels = [
            mean([level async for level in _levels(kept, number, seeds, folder)]) for number in (1, 2, 4, 8)
        ]
        sys.stdout.write(f"| {kept} | {', '.join(f'{level:.2f}' for level in levels)} |\n")
        sys.stdout.flush()


async def _levels(kept: float, number: int, seeds: int, folder: Path) -> AsyncIterator[float]:
    for seed in range(seeds // 10):
        yield await left(kept, number, seed, folder)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--row", default="")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trio.run(partial(report, chosen.seeds, Path(folder), chosen.row))


if __name__ == "__main__":
    main()
