"""Evidence by family of whether a policy that others' text has changed keeps what it knew before.

Two policies answer the same fresh tasks. Over all tasks a gain in some families hides the loss of another
one, and who teaches those may spoil this. All evidence here consists of e-processes: the capital of bets
against a hypothesis (Waudby-Smith and Ramdas 2024). While the hypothesis is true no gain can be expected, so
the probability that the capital ever is 1/p times the stake is at most p, however often one looks (Ville
1939).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, sqrt
from typing import Final, NamedTuple

KEPT_PART: Final = 0.5
"""Part of what the old policy can do in a family that the new one has to keep."""

LOSS_STAKES: Final = (0.2, 0.4)
"""Parts of the capital that are bet on each task, if the bet is that more than half was lost; below 1/2."""

BEST_LOSS_STAKES: Final = (0.4, 0.8)
"""The same if the bet is that less than half of the best level is left; below 1."""

KEPT_STAKES: Final = (0.2, 0.5, 0.8)
"""The same if the bet is that more than half is kept; below 1."""

FALSE_WAITS: Final = 0.05
"""Probability with which a policy that keeps a half of a family is said to have lost it, at most."""

FALSE_KEEPS: Final = 0.05
"""Probability with which one that keeps less than a half of a family is said to keep it, at most."""

KNOWN: Final = 0.3
"""Measured share of right answers from which on a family counts as known; `rehearsal.SOLVED` is the same."""

KNOWN_DEVIATIONS: Final = 1.5
"""Standard deviations by which the measured share has to be below ``KNOWN`` before no proof is asked for in a
family: its first tasks may happen to be solved less often."""

FAMILY_TASKS: Final = 16
"""Tasks of a family from which on its share of right answers is measured."""

SURE_DEVIATIONS: Final = 2.5
"""Standard deviations by which a level that a policy surely had is below the measured one."""


Assigned = Callable[[], Sequence[int]]
"""Returns the families, as indices of the suite, that tasks may have now: not those that the swarm's terms
have retired, which a policy may forget, nor those that have not begun."""


class Comparison(NamedTuple):
    """Results of an old and a new policy on the same tasks.

    Attributes:
        tasks: number of them.
        both: that both solve.
        won: that the new one alone solves.
        lost: that the old one alone solves.
    """

    tasks: int
    both: int
    won: int
    lost: int

    def and_also(self, other: Comparison) -> Comparison:
        """Return the results on the tasks of both together."""
        return Comparison(*(one + two for one, two in zip(self, other, strict=True)))


NO_TASKS: Final = Comparison(0, 0, 0, 0)

ByFamily = Mapping[int, Comparison]
"""Results by family, as an index of the suite."""


class Capital:
    """Capital of the bets against one hypothesis.

    The first bet of each stake begins with the first comparison and others with later ones, for a policy may
    change; together they begin with at most 1.

    Args:
        stakes: parts of the capital that are bet on each outcome.
        max_capital: bound of the capital, so that a later change is soon seen.
    """

    def __init__(self, stakes: Sequence[float], max_capital: float = inf) -> None:
        self._stakes = stakes
        self._max_capital = max_capital
        self._each = [0.0 for _ in stakes]
        self._comparisons = 0

    def bet(self, outcomes: Iterable[tuple[float, int]]) -> None:
        """Bet on one more comparison.

        Args:
            outcomes: each with its number; an outcome x multiplies the capital of stake s by 1 + s x.
        """
        self._comparisons += 1
        begun = 1.0 / (self._comparisons * (self._comparisons + 1))  # of all that ever begin: adds up to 1
        found = list(outcomes)
        for place, stake in enumerate(self._stakes):
            capital = self._each[place] + begun
            for value, times in found:
                capital *= (1.0 + stake * value) ** times
            self._each[place] = min(self._max_capital, capital)

    @property
    def mean(self) -> float:
        """The capital, as a multiple of what was staked."""
        return sum(self._each) / len(self._each)


class Losses:
    """Evidence, family by family, that a new policy is right less than half as often as the old one.

    The outcome of a task is 1 where the old one alone is right, -1 where both are and -2 where the new one
    alone is: 0 or less in the mean while the new one is right at least half as often. The capital is bounded
    by what it takes to be sure: one that learns it again is soon cleared.

    With best levels, also that it is right less than half as often as the best of this node's policies: by
    many losses of less than half a family would be lost.

    Args:
        families: number of families in the suite.
        doubt: probability of a false finding in a family by each kind of evidence, at most.
        best: what earlier policies could do; None: this is not compared.
    """

    def __init__(self, families: int, doubt: float = FALSE_WAITS, best: BestLevels | None = None) -> None:
        self._sure = 1.0 / doubt
        self._best = best or BestLevels([0.0] * families)
        self._of_old = [Capital(LOSS_STAKES, len(LOSS_STAKES) * self._sure) for _ in range(families)]
        self._of_best = [
            Capital(BEST_LOSS_STAKES, len(BEST_LOSS_STAKES) * self._sure) for _ in range(families)
        ]
        self._results = dict.fromkeys(range(families), NO_TASKS)

    def learn(self, latest: ByFamily) -> None:
        """Take notice of one more comparison."""
        for family, each in latest.items():
            self._results[family] = self._results[family].and_also(each)
            self._of_old[family].bet(((1.0, each.lost), (-1.0, each.both), (-2.0, each.won)))
            right, wanted = each.won + each.both, self._best.part_of(family)
            self._of_best[family].bet(((wanted, each.tasks - right), (wanted - 1.0, right)))

    @property
    def spoilt(self) -> list[int]:
        """The families in which the new policy has surely lost more than half."""
        return [family for family in self._results if self._is_spoilt(family)]

    def _is_spoilt(self, family: int) -> bool:
        if self._of_old[family].mean >= self._sure:
            return True
        # the old policy may have less itself, and then it is no use to go back to it
        return self._of_best[family].mean >= self._sure and self._best.may_be_kept_by_old(
            family, self._results[family]
        )


class BestLevels:
    """The share of right answers that a node's policies surely had at some time, by family.

    A loss of less than half passes. Where each loss is compared with the level that the last one left, many
    of them take everything.

    Args:
        levels: by family; zeros before any was measured.
    """

    def __init__(self, levels: Sequence[float]) -> None:
        self._best = list(levels)

    @property
    def levels(self) -> tuple[float, ...]:
        """All levels, 0 to 1, by family; 0 before one was measured."""
        return tuple(self._best)

    def learn(self, results: ByFamily) -> None:
        """Take notice of what an old policy could do before a new one took its place."""
        for family, each in results.items():
            self._best[family] = max(self._best[family], _lower_bound(each.both + each.lost, each.tasks))

    def part_of(self, family: int) -> float:
        """Return the part of a level that has to be kept."""
        return KEPT_PART * self._best[family]

    def may_be_kept_by_old(self, family: int, results: Comparison) -> bool:
        """Whether the old policy may have that part itself; False before a level was measured.

        A policy that surely has less, such as a shadow after a rollback, says nothing about the new one.
        """
        wanted = self.part_of(family)
        return wanted > 0.0 and _upper_bound(results.both + results.lost, results.tasks) >= wanted


class Kept:
    """Evidence, family by family, that a new policy keeps at least half of what this node could do.

    That a loss was not found says little after a few tasks: a policy that had lost six tenths of a family was
    promoted in the second round, before the loss was sure. So in each family that the old policy knows it has
    to be sure that at least half is kept, of what the old policy can do and of the best level.

    Args:
        families: number of families in the suite.
        best: what earlier policies could do.
    """

    def __init__(self, families: int, best: BestLevels) -> None:
        self._best = best
        max_capital = (1.0 / FALSE_KEEPS) ** 2  # so that one wrong answer more does not take a finding back
        self._of_old = [Capital(KEPT_STAKES, max_capital) for _ in range(families)]
        self._of_best = [Capital(KEPT_STAKES, max_capital) for _ in range(families)]
        self.results = dict.fromkeys(range(families), NO_TASKS)

    def learn(self, latest: ByFamily) -> None:
        """Take notice of one more comparison."""
        for family, each in latest.items():
            self.results[family] = self.results[family].and_also(each)
            self._of_old[family].bet(
                ((1.0, each.won), (1.0 - KEPT_PART, each.both), (-KEPT_PART, each.lost)),
            )
            right, wanted = each.won + each.both, self._best.part_of(family)
            self._of_best[family].bet(((1.0 - wanted, right), (-wanted, each.tasks - right)))

    @property
    def unproven(self) -> list[int]:
        """The families that the old policy knows, or an earlier one knew, and that may be lost."""
        return [family for family in self.results if self._may_be_lost(family)]

    def _may_be_lost(self, family: int) -> bool:
        found = self.results[family]
        if not found.tasks:
            return False  # none of its tasks could be checked, and never may be
        if self._best.may_be_kept_by_old(family, found) and not _is_sure(self._of_best[family]):
            return True
        level = _upper_bound(found.both + found.lost, found.tasks, KNOWN_DEVIATIONS)
        return level >= KNOWN and not _is_sure(self._of_old[family])


def _is_sure(capital: Capital) -> bool:
    return capital.mean >= 1.0 / FALSE_KEEPS


def _lower_bound(right: int, tasks: int) -> float:
    """Return a share of right answers that is surely not too high; 0 below ``KNOWN``, and of few tasks."""
    if tasks < FAMILY_TASKS:
        return 0.0
    found = 1.0 - _upper_bound(tasks - right, tasks)
    return found if found >= KNOWN else 0.0


def _upper_bound(right: float, tasks: int, sure: float = SURE_DEVIATIONS) -> float:
    """Return a share of right answers that is surely not too low (Wilson 1927).

    Args:
        sure: standard deviations by which it is above the measured one.
    """
    share, deviations = right / tasks, sure**2 / tasks
    error = sure * sqrt(share * (1.0 - share) / tasks + deviations / (4.0 * tasks))
    return (share + deviations / 2.0 + error) / (1.0 + deviations)
