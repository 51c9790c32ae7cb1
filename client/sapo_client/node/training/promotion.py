"""Promotion: weights that demonstrations have trained become the policy once they are better than it.

A policy that learns a new family forgets much of what it knew before it knows both
(docs/experiment-notes.md). So the learner keeps its policy, and trains a candidate beside it. After each
round both answer the same fresh tasks, and when the candidate is right more often, beyond chance, it becomes
the policy. A candidate that is never better changes nothing: not what the node answers, not what it
publishes, not what it exports.

Over all tasks a gain in some families hides the loss of another one, and who teaches those may spoil this.
So a candidate that has surely lost more than half of what the policy can do in a family waits until it has it
again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, Protocol

from sapo_client.node.training.canary import Checkers
from sapo_client.node.training.rehearsal import is_right, posed
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SEED_BITS
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed

FALSE_PROMOTIONS: Final = 0.05
"""Probability with which a candidate that is never better is promoted at most, in any number of rounds."""

STAKES: Final = (0.1, 0.2, 0.4, 0.8)
"""Parts of a gambler's money on the next task that only one of both solves: a small one finds that one family
of thirty was learned, a large one that much was."""


LOSS_STAKES: Final = (0.2, 0.4)
"""The same on each task of a family, for gamblers who bet that more than half was lost; below a half."""

FALSE_WAITS: Final = 0.05
"""Probability with which a candidate that keeps a half of a family is said to have lost it, at most."""

FAMILY_TASKS: Final = 16
"""Tasks of every family that are drawn before a promotion, for there may be only one or two in a round."""


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


class Betterness:
    """Evidence, over all comparisons, that a candidate has become better than its policy.

    It is the capital of bets on the candidate (Waudby-Smith and Ramdas 2024). The first one of each
    stake begins with the first comparison and others with later ones, for a candidate is worse before it is
    better; together they begin with at most 1. While the candidate is no better none can expect a gain, so
    the probability that they ever have 1/p is at most p (Ville 1939). A comparison of a fixed number of last
    rounds has no such bound: repeated in every round, it finds a difference by chance sooner or later.
    """

    def __init__(self) -> None:
        self._money = [0.0 for _ in STAKES]
        self._comparisons = 0

    def shows(self, latest: Comparison) -> bool:
        """Whether the candidate is surely better, now that it was compared once more."""
        self._comparisons += 1
        begun = 1.0 / (self._comparisons * (self._comparisons + 1))  # of all that ever begin: adds up to 1
        self._money = [
            (money + begun) * (1.0 + stake) ** latest.won * (1.0 - stake) ** latest.lost
            for money, stake in zip(self._money, STAKES, strict=True)
        ]
        return sum(self._money) / len(STAKES) >= 1.0 / FALSE_PROMOTIONS


class Losses:
    """Evidence, family by family, that a candidate is right less than half as often as its policy.

    Again the money of gamblers. Each task pays them 1 where the policy alone is right, and takes 1 where both
    are and 2 where the candidate alone is: in the mean nothing or less while the candidate is right at least
    half as often. They keep no more than it takes to be sure: one that learns it again is soon cleared.

    Args:
        families: number of families in the suite.
    """

    def __init__(self, families: int) -> None:
        self._money = [[0.0 for _ in LOSS_STAKES] for _ in range(families)]
        self._comparisons = 0

    def learn(self, latest: Mapping[int, Comparison]) -> None:
        """Take notice of one more comparison, by family."""
        self._comparisons += 1
        begun = 1.0 / (self._comparisons * (self._comparisons + 1))
        most = len(LOSS_STAKES) / FALSE_WAITS
        for family, each in latest.items():
            self._money[family] = [
                min(most, (money + begun) * _kept_of(stake, each))
                for money, stake in zip(self._money[family], LOSS_STAKES, strict=True)
            ]

    @property
    def spoilt(self) -> list[int]:
        """The families in which the candidate has surely lost more than half."""
        return [
            family
            for family, money in enumerate(self._money)
            if sum(money) / len(LOSS_STAKES) >= 1.0 / FALSE_WAITS
        ]


def _kept_of(stake: float, each: Comparison) -> float:
    """Return what a part of a gambler's money becomes that is staked on the loss of a family."""
    lost, both, won = 1.0 + stake, 1.0 - stake, 1.0 - 2.0 * stake
    return float(lost**each.lost * both**each.both * won**each.won)


class PromotionRole(Protocol):
    """Look at the learner after each round."""

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Record the values of a round's report."""


class NoPromotion:
    """The role beside a backend that has no candidates."""

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Do nothing."""


class Promotion:
    """Compares a learner's candidate with its policy.

    Args:
        families: number of families in the suite.
        tasks: answered by each of both after a round.
        rng: draws them; others cannot predict them.
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
        self._turns = count()
        self._begin()

    def _begin(self) -> None:
        """Forget what was found out about the last candidate."""
        self._betterness, self._losses = Betterness(), Losses(self._families)
        self._drawn = 0

    async def after(self, step: int, *, has_candidate: bool) -> None:
        """Compare if there is a candidate, and promote it if it is better.

        Args:
            step: number of the learner's step.
            has_candidate: whether there is one after it.

        Raises:
            LearnerCrashed: nothing was promoted; the next round compares again.
        """
        if not has_candidate:
            self._begin()
            return
        by_family = await self._compare()
        latest = Comparison(*map(sum, zip(*by_family.values(), strict=True)))
        self._losses.learn(by_family)
        self._drawn += self._tasks
        is_better, spoilt = self._betterness.shows(latest), self._losses.spoilt
        is_known = self._drawn >= FAMILY_TASKS * self._families
        promoted = is_better and is_known and not spoilt
        self._events.write(
            "candidate_compared", step=step, promoted=promoted, spoilt=spoilt, **latest._asdict()
        )
        if promoted:
            await self._learner.promote()

    async def _compare(self) -> Mapping[int, Comparison]:
        """Return the results on fresh tasks by family, of all in turn, from one comparison to the next."""
        drawn = [
            Task(next(self._turns) % self._families, self._rng.getrandbits(SEED_BITS))
            for _ in range(self._tasks)
        ]
        asked = await posed(self._checkers, drawn)
        answers = await self._learner.compare(
            [prompt for _, prompt in asked], seed=self._rng.getrandbits(SEED_BITS)
        )
        found = dict.fromkeys(range(self._families), Comparison(0, 0, 0, 0))
        for (task, _), *texts in zip(asked, *answers, strict=True):
            policy, candidate = [
                await is_right(self._checkers, task, text, self._on_failure) for text in texts
            ]
            if policy is None or candidate is None:
                continue
            tasks, both, won, lost = found[task.family]
            found[task.family] = Comparison(
                tasks + 1,
                both + (policy and candidate),
                won + (candidate and not policy),
                lost + (policy and not candidate),
            )
        return found

    def _on_failure(self, task: Task, error: CheckFailed) -> None:
        self._events.write("comparison_failed", family=task.family, detail=str(error))
