"""Own groups as further tasks that show whether a policy knows a family: are candidates promoted sooner?

`PYTHONPATH=$PYTHONPATH:tests python -m support.promotion_own_groups --row "others 0.2"` prints rows of an
alternative that was not taken (docs/adr/learner-promotion.md). A node draws four own tasks a round, of
families by chance, and samples eight answers to each. Tasks of a family differ in difficulty, so that a
group counts as one task. With `--stale` the first family was learned just before the first comparison.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Final

import trio
from support.promotion_trials import ALIKE, ROUNDS, ROWS, Chances, Trial

from sapo_client.node.training.family_evidence import KNOWN, KNOWN_DEVIATIONS, BestLevels, Kept, _upper_bound

GROUPS: Final = 4
ANSWERS: Final = 8
MAX_GROUPS: Final = 32
"""Last groups of a family that count."""

CONCENTRATION: Final = 7 / 3
"""Of the beta distribution of a task's chance: answers to one task correlate by 0.3."""

BEFORE: Final = (None, 3, 50, 200)
"""Rounds before the first comparison in which own groups count; None: none ever counts. By default it comes
after three rounds of a candidate."""

STALE: Final = 0.1
"""Chance in the first family before it was learned."""


class OwnGroups:
    """Mean rewards of a policy's own groups by family.

    Args:
        chances: of policy and candidate, by family.
    """

    def __init__(self, chances: Chances, seed: int) -> None:
        self._chances = [policy for policy, _ in chances]
        self._rng = random.Random(f"own {seed}")
        self._means: list[list[float]] = [[] for _ in chances]

    def add(self, rounds: int, *, is_stale: bool = False) -> None:
        """Add the groups of so many rounds.

        Args:
            is_stale: of a policy that does not know the first family yet.
        """
        for _ in range(rounds * GROUPS):
            family = self._rng.randrange(len(self._chances))
            chance = STALE if is_stale and family == 0 else self._chances[family]
            if 0.0 < chance < 1.0:
                chance = self._rng.betavariate(chance * CONCENTRATION, (1.0 - chance) * CONCENTRATION)
            right = sum(self._rng.random() < chance for _ in range(ANSWERS))
            self._means[family] = [*self._means[family], right / ANSWERS][-MAX_GROUPS:]

    def of(self, family: int) -> tuple[float, int]:
        """Return how many groups of a family were right, in parts, and their number."""
        return sum(self._means[family]), len(self._means[family])


class KeptWithGroups(Kept):
    """Evidence that counts own groups among the tasks that show whether a family is known."""

    def __init__(self, families: int, groups: OwnGroups) -> None:
        super().__init__(families, BestLevels([0.0] * families))
        self._groups = groups

    def _may_be_lost(self, family: int) -> bool:
        if not super()._may_be_lost(family):
            return False
        found, (right, groups) = self.results[family], self._groups.of(family)
        level = _upper_bound(found.both + found.lost + right, found.tasks + groups, KNOWN_DEVIATIONS)
        return level >= KNOWN


async def promoted_after(
    chances: Chances, alike: float, seed: int, before: int | None, *, is_stale: bool
) -> int | None:
    """Return after how many comparisons a candidate is promoted; None if it is not."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(chances, alike, seed, Path(folder))
        groups = OwnGroups(chances, seed)
        groups.add(before or 0, is_stale=is_stale)
        if before is not None:
            trial.promotion._kept = KeptWithGroups(len(chances), groups)
        for number in range(1, ROUNDS + 1):
            groups.add(1)
            await trial.promotion.after(number, has_candidate=True)
            if trial.learner.promoted:
                return number
    return None


async def report(seeds: int, row: str, *, is_stale: bool) -> None:
    """Print the rows whose names hold a text."""
    for name, chances in ROWS.items():
        for before in BEFORE if row in name else ():
            cells = []
            for alike in (0.0, ALIKE):
                found = [
                    await promoted_after(chances, alike, seed, before, is_stale=is_stale)
                    for seed in range(seeds)
                ]
                rounds = [each for each in found if each is not None]
                cells.append(f"{len(rounds) / seeds:.0%}, {median_low(rounds)}" if rounds else "none")
            sys.stdout.write(f"| {name} | {before} | {' | '.join(cells)} |\n")
            sys.stdout.flush()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--row", default="")
    parser.add_argument("--stale", action="store_true")
    chosen = parser.parse_args()
    trio.run(partial(report, chosen.seeds, chosen.row, is_stale=chosen.stale))


if __name__ == "__main__":
    main()
