"""Demonstrations from the task generator: the control for every claim that others' text helps learning.

ReasoningGYM knows the answers to the tasks that it generates, and so does every node. A node can learn from
these answers without a swarm, so sharing is useful only if it teaches more than they do.
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
    """Source of at least as many right answers as a swarm has: bare answers, without steps.

    Args:
        need: weight of a family, by its index; families with more weight are demonstrated more often.
    """

    def __init__(self, families: Sequence[Family], count: int, need: Callable[[int], float]) -> None:
        self._families = families
        self._count = count
        self._need = need

    def demonstrate(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """Return answers to new items, with families drawn by ``need``."""
        indices = range(len(self._families))
        needs = [self._need(index) for index in indices]
        if not any(needs):
            return ()
        drawn = rng.choices(indices, needs, k=self._count)
        return tuple(filter(None, (self._demonstration(index, rng) for index in drawn)))

    def take_to_judge(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """Return nothing: these answers have no author to judge."""
        return ()

    def _demonstration(self, index: int, rng: random.Random) -> Demonstration | None:
        family = self._families[index]
        seed, item = fresh_seed(family, rng)
        answer = solution(family, item)
        if answer is None:
            return None
        text = answer if family.answer == "plain" else f"{OPEN_TAG}{answer}{CLOSE_TAG}"
        return Demonstration(Task(index, seed), item.prompt, text.encode(), source=None)
