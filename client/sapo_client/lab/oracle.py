"""Demonstrations from the task generator: the control of every claim that others' text teaches.

ReasoningGYM knows the answers of the tasks that it generates, and so does every node. What a node learns from
these answers it learns without a swarm; only what it learns from others beyond that is worth sharing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sapo_client.lab.held_out import fresh_seed
from sapo_protocol.suite import Family
from sapo_protocol.tasks import Task
from sapo_verification.tasks.generators import solution
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG
from sapo_verification.types import Demonstration


class Oracle:
    """Source of as many right answers as a swarm could ever show: bare, without a way to them.

    Args:
        need: weight of a family, by its index; those of which more is needed are demonstrated more often.
    """

    def __init__(self, families: Sequence[Family], count: int, need: Callable[[int], float]) -> None:
        self._families = families
        self._count = count
        self._need = need

    def demonstrate(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """Return answers to fresh items, families by what the node lacks in them."""
        indices = range(len(self._families))
        needs = [self._need(index) for index in indices]
        if not any(needs):
            return ()
        drawn = rng.choices(indices, needs, k=self._count)
        return tuple(filter(None, (self._demonstration(index, rng) for index in drawn)))

    def take_to_judge(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """Return nothing: nobody wrote these answers."""
        return ()

    def _demonstration(self, index: int, rng: random.Random) -> Demonstration | None:
        family = self._families[index]
        seed, item = fresh_seed(family, rng)
        answer = solution(family, item)
        if answer is None:
            return None
        text = answer if family.answer == "plain" else f"{OPEN_TAG}{answer}{CLOSE_TAG}"
        return Demonstration(Task(index, seed), item.prompt, text.encode(), source=None)
