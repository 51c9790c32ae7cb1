"""Promotion: weights that demonstrations have trained become the policy once they are better than it.

A policy that learns a new family forgets much of what it knew before it knows both
(docs/experiment-notes.md). So the learner keeps its policy, and trains a candidate beside it. After each
round both answer the same fresh tasks, and when the candidate is right more often, beyond chance, it becomes
the policy. A candidate that is never better changes nothing: not what the node answers, not what it
publishes, not what it exports.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from itertools import count
from math import sqrt
from typing import Final, NamedTuple, Protocol

from sapo_client.node.training.canary import Checkers
from sapo_client.node.training.rehearsal import is_right, posed
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SEED_BITS
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed

WINDOWS: Final = (4, 8, 16, 32)
"""Numbers of last comparisons that are looked at together. A few tell that much was learned, before it is out
of date; many tell that one family of thirty was."""

DEVIATIONS: Final = 2.33
"""Standard deviations by which the candidate has to be better: 1 % by chance. It is asked in every round of
the time in which it is worse."""


class Candidates(Protocol):
    """What a promotion needs of a learner."""

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return one completion per prompt of the policy, and one of its candidate."""
        ...

    async def promote(self) -> None:
        """Let the candidate be the policy."""
        ...


class Comparison(NamedTuple):
    """Results of a policy and its candidate on the same tasks.

    Attributes:
        tasks: number of them.
        both: that both solve.
        won: that the candidate alone solves.
        lost: that the policy alone solves.
    """

    tasks: int
    both: int
    won: int
    lost: int

    @classmethod
    def total(cls, several: Sequence[Comparison]) -> Comparison:
        """Return several comparisons as one."""
        return cls(*map(sum, zip(*several, strict=True)))

    @property
    def is_better(self) -> bool:
        """Whether the candidate is surely better: McNemar's test (1947), one-sided."""
        return self.won - self.lost > DEVIATIONS * sqrt(self.won + self.lost)


class PromotionRole(Protocol):
    """Look at the learner after each round."""

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Take notice of what a round's report says."""


class NoPromotion:
    """The role beside a backend that has no candidates."""

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Do nothing."""


class Promotion:
    """Compares a learner's candidate with its policy.

    Args:
        families: number of families in the suite.
        tasks: answered by each of both after a round.
        rng: draws them; nobody else can tell which.
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
    ) -> None:
        self._learner = learner
        self._checkers = checkers
        self._events = events
        self._families = families
        self._tasks = tasks
        self._rng = rng
        self._comparisons: deque[Comparison] = deque(maxlen=WINDOWS[-1])
        self._turns = count()

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Compare if there is a candidate, and promote it if it is better.

        Args:
            step: number of the learner's step.
            has_candidate: whether there is one after it.

        Raises:
            LearnerCrashed: nothing was promoted; the next round compares again.
        """
        if not has_candidate:
            self._comparisons.clear()
            return
        self._comparisons.append(await self._compare())
        last = list(self._comparisons)
        windows = [Comparison.total(last[-size:]) for size in WINDOWS if size <= len(last)]
        is_better = any(window.is_better for window in windows)
        self._events.write("candidate_compared", step=step, promoted=is_better, **last[-1]._asdict())
        if is_better:
            await self._learner.promote()

    async def _compare(self) -> Comparison:
        """Return the results on fresh tasks, of all families in turn, from one comparison to the next."""
        drawn = [
            Task(next(self._turns) % self._families, self._rng.getrandbits(SEED_BITS))
            for _ in range(self._tasks)
        ]
        asked = await posed(self._checkers, drawn)
        answers = await self._learner.compare(
            [prompt for _, prompt in asked], seed=self._rng.getrandbits(SEED_BITS)
        )
        tasks = both = won = lost = 0
        for (task, _), *texts in zip(asked, *answers, strict=True):
            policy, candidate = [
                await is_right(self._checkers, task, text, self._on_failure) for text in texts
            ]
            if policy is None or candidate is None:
                continue
            tasks += 1
            both += policy and candidate
            won += candidate and not policy
            lost += policy and not candidate
        return Comparison(tasks, both, won, lost)

    def _on_failure(self, task: Task, error: CheckFailed) -> None:
        self._events.write("comparison_failed", family=task.family, detail=str(error))
