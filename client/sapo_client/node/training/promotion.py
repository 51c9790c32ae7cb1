"""Promotion: weights that demonstrations have trained become the policy once they are better than it.

A policy that learns a new family forgets much of what it knew before it knows both
(docs/experiment-notes.md). So the learner keeps its policy, and trains a candidate beside it. After each
round both answer the same fresh tasks, and when the candidate is right more often, beyond chance, it becomes
the policy. A candidate that is never better changes nothing: not what the node answers, not what it
publishes, not what it exports.

Over all tasks a gain in some families hides the loss of another one, and who teaches those may spoil this.
So a candidate waits until it surely keeps at least half of what the policy can do in each family that this
knows, and of the best level of earlier policies.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count, cycle, islice
from typing import Final, NamedTuple, Protocol

from sapo_client.learner.backend import LearnerCrashed
from sapo_client.node.training.canary import CanaryRole, Checkers
from sapo_client.node.training.family_evidence import (
    FAMILY_TASKS,
    NO_TASKS,
    Assigned,
    BestLevels,
    ByFamily,
    Capital,
    Comparison,
    Kept,
    Losses,
)
from sapo_client.node.training.level_file import LevelFile
from sapo_client.node.training.rehearsal import is_right, posed
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SEED_BITS
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.types import SampledBatch

FALSE_PROMOTIONS: Final = 0.05
"""Probability with which a candidate that is never better is promoted at most, in any number of rounds."""

STAKES: Final = (0.1, 0.2, 0.4, 0.8)
"""Parts of a gambler's money on the next task that only one of both solves: a small one finds that one family
of thirty was learned, a large one that much was."""


class Candidates(Protocol):
    """What a promotion needs of a learner."""

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return one completion per prompt of the policy, and one of its candidate."""
        ...

    async def promote(self) -> None:
        """Make the candidate the policy."""
        ...


class Betterness:
    """Evidence, over all comparisons, that a candidate has become better than its policy.

    It is the capital of bets on the candidate (Waudby-Smith and Ramdas 2024). The first one of each
    stake begins with the first comparison and others with later ones, for a candidate is worse before it is
    better; together they begin with at most 1. While the candidate is no better none can expect a gain, so
    the probability that they ever have 1/p is at most p (Ville 1939). A comparison of a fixed number of last
    rounds has no such bound: repeated in every round, it finds a difference by chance sooner or later.
    """

    def __init__(self) -> None:
        self._capital = Capital(STAKES)

    def shows(self, latest: Comparison) -> bool:
        """Whether the candidate is surely better, now that it was compared once more."""
        self._capital.bet(((1.0, latest.won), (-1.0, latest.lost)))
        return self._capital.mean >= 1.0 / FALSE_PROMOTIONS


class PromotionRole(Protocol):
    """Look at the learner after each round."""

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Record the values of a round's report."""


class NoPromotion:
    """The role beside a backend that has no candidates."""

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Do nothing."""


async def after_round(
    canary: CanaryRole, promotion: PromotionRole, batch: SampledBatch, *, step: int, has_candidate: bool
) -> None:
    """Let canary and promotion look at a trained round.

    Args:
        step: the policy's last step.
        has_candidate: whether there was a candidate when the round was trained. One of before the policy
            went back is there no more: to compare would compare the policy with itself.

    Raises:
        LearnerCrashed: they look again after the next round.
    """
    went_back = await canary.after(batch)
    await promotion.after(step, has_candidate=has_candidate and not went_back)


class Promotion:
    """Compares a learner's candidate with its policy.

    Args:
        families: number of families in the suite.
        tasks: answered by each of both after a round.
        rng: draws them; others cannot predict them.
        file: of the best levels; None: they end with this object.
        assigned: families that tasks are drawn of; None: all of them, always.
    """

    def __init__(
        self,
        learner: Candidates,
        checkers: Checkers,
        events: EventLog,
        *,
        families: int,
        tasks: int,
        rng: random.Random,
        file: LevelFile | None = None,
        assigned: Assigned | None = None,
    ) -> None:
        self._learner = learner
        self._checkers = checkers
        self._events = events
        self._families = families
        self._assigned: Assigned = (lambda: range(families)) if assigned is None else assigned
        self._tasks = tasks
        self._rng = rng
        self._turns = count()
        self._file = file
        self._best = BestLevels([0.0] * families if file is None else file.read())
        self._begin()

    def _begin(self) -> None:
        """Forget what was found out about the last candidate."""
        self._betterness = Betterness()
        self._losses, self._kept = Losses(self._families), Kept(self._families, self._best)
        self._drawn, self._is_better = 0, False

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Compare if there is a candidate, and promote it if it is better and keeps what the policy knows.

        Args:
            step: number of the learner's step.
            has_candidate: whether there is one after it.

        Raises:
            LearnerCrashed: nothing was promoted; the next round compares again.
        """
        if not has_candidate:
            self._begin()
            return
        assigned = self._assigned()
        in_turn, further = await self._compare(assigned)
        latest = _total(in_turn)
        by_family = {family: in_turn[family].and_also(further[family]) for family in range(self._families)}
        self._losses.learn(by_family)
        self._kept.learn(by_family)
        self._is_better = self._betterness.shows(latest)
        spoilt, unproven = (
            [family for family in each if family in assigned]
            for each in (self._losses.spoilt, self._kept.unproven)
        )
        is_known = self._drawn >= FAMILY_TASKS * len(assigned)
        promotes = self._is_better and is_known and not spoilt and not unproven
        compared = {"step": step, "spoilt": spoilt, "unproven": unproven, **latest._asdict()}
        try:
            if promotes:
                await self._promote()
        except LearnerCrashed:
            self._events.write("candidate_compared", promoted=False, **compared)
            raise
        self._events.write("candidate_compared", promoted=promotes, **compared)

    async def _promote(self) -> None:
        """Make the candidate the policy, then record the levels of the one before.

        Raises:
            LearnerCrashed: the policy is the one before, and the levels are those before.
        """
        await self._learner.promote()
        self._best.learn(self._kept.results)
        if self._file is not None:
            self._file.write(self._best.levels)
        self._begin()

    def _drawn_families(self, assigned: Sequence[int]) -> _Families:
        """Return the families of a comparison's tasks.

        If a candidate is better than the policy, half of the tasks are of families that it may have lost: in
        a suite of thirty a round has two of each, and it would take long until all are known to be kept.
        """
        unproven = [family for family in self._kept.unproven if family in assigned and self._is_better]
        further = self._tasks // 2 if unproven else 0
        in_turn = [assigned[next(self._turns) % len(assigned)] for _ in range(self._tasks - further)]
        self._drawn += len(in_turn)
        return _Families(in_turn, list(islice(cycle(self._rng.sample(unproven, len(unproven))), further)))

    async def _compare(self, assigned: Sequence[int]) -> tuple[ByFamily, ByFamily]:
        """Return the results by family on fresh tasks of all in turn, and on those of families in doubt."""
        families = self._drawn_families(assigned)
        in_turn, further = [
            [Task(family, self._rng.getrandbits(SEED_BITS)) for family in each] for each in families
        ]
        asked = await posed(self._checkers, [*in_turn, *further])
        answers = await self._learner.compare(
            [prompt for _, prompt in asked], seed=self._rng.getrandbits(SEED_BITS)
        )
        of_further = frozenset(further)
        found = [dict.fromkeys(range(self._families), NO_TASKS) for _ in families]
        for (task, _), *texts in zip(asked, *answers, strict=True):
            policy, candidate = [
                await is_right(self._checkers, task, text, self._on_failure) for text in texts
            ]
            if policy is None or candidate is None:
                continue
            one = Comparison(1, policy and candidate, candidate and not policy, policy and not candidate)
            results = found[task in of_further]
            results[task.family] = results[task.family].and_also(one)
        return found[0], found[1]

    def _on_failure(self, task: Task, error: CheckFailed) -> None:
        self._events.write("comparison_failed", family=task.family, detail=str(error))


class _Families(NamedTuple):
    """Families of the tasks of a comparison: of all in turn, and of those in doubt."""

    in_turn: list[int]
    further: list[int]


def _total(results: ByFamily) -> Comparison:
    """Return the results over all families."""
    total = NO_TASKS
    for each in results.values():
        total = total.and_also(each)
    return total
