"""This node's own success by task family, from the rollouts that it made and verified itself."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Family
from sapo_verification.observer import Observer
from sapo_verification.types import VerifiedRollout

GROUPS: Final = 32
"""Own groups per family after which the mean becomes an exponential moving average."""

MIN_CHANCE: Final = 0.1
"""Least weight of a family, on a scale on which 1 is a family with half of the answers right: a family in
which nothing can be learned at present is still tried now and then.
"""


@dataclass(frozen=True, slots=True)
class FamilyRecord:
    """This node's own success in one family of the suite.

    Attributes:
        level: of the family's tasks.
        groups: own groups in it that the mean covers, at most ``GROUPS``.
        success: share of right answers in them, 0 to 1; 0 without a group.
    """

    name: str
    level: str
    groups: int
    success: float


TaskSampler = Callable[[Sequence[FamilyRecord], random.Random], int]
"""Chooses the family (index in the suite) of a new own task, from the records in the suite's order."""


class OwnSuccess(Observer):
    """Mean reward of own groups by family.

    Groups that answer the task of another account's rollout are not counted, since that account chose the
    task.

    Args:
        own: this node's account.
        families: number of families in the suite.
    """

    def __init__(self, own: Account, families: int) -> None:
        self._own = own
        self._means = [0.0] * families
        self._spreads = [0.0] * families
        self._groups = [0] * families

    def verified(self, rollout: VerifiedRollout) -> None:
        """Count an own group."""
        if rollout.account != self._own:
            return
        family = rollout.task.family
        self._groups[family] = min(self._groups[family] + 1, GROUPS)
        mean = rollout.mean_reward
        self._means[family] += (mean - self._means[family]) / self._groups[family]
        self._spreads[family] += (4.0 * mean * (1.0 - mean) - self._spreads[family]) / self._groups[family]

    def of(self, family: int) -> float:
        """Return the share of right answers, 0 to 1; 0 before the first group."""
        return self._means[family]

    def records(self, families: Sequence[Family]) -> tuple[FamilyRecord, ...]:
        """Return the records of the suite's families, in its order."""
        return tuple(
            FamilyRecord(family.name, family.level, groups, mean)
            for family, groups, mean in zip(families, self._groups, self._means, strict=True)
        )

    def chances(self) -> Sequence[float]:
        """Return the weights by which own tasks are drawn if they are drawn by what can be learned from them.

        A family's weight is the mean over its groups of 4 p (1 - p), p being a group's share of right
        answers: the variance of the reward within the group relative to its maximum. (The variance within
        groups, not that over all answers: where half of the items are always answered rightly and the others
        never, no group has an advantage.) A family without a group has weight 1.
        """
        return [
            max(MIN_CHANCE, spread) if groups else 1.0
            for spread, groups in zip(self._spreads, self._groups, strict=True)
        ]
