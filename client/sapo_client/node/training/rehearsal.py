"""Rehearsal: own right answers in families that this node has solved, trained beside demonstrations.

A policy that is trained only on what it does not know forgets what it knew (catastrophic forgetting,
McCloskey and Cohen 1989). So before demonstrations are trained at full weight, the policy answers tasks of
the families that it has solved, one answer each, and the right ones are kept (learning without forgetting,
arXiv 1606.09282). The tasks are drawn by this node, so that no other account can choose what is retained.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from sapo_client.learner.backend import Generation
from sapo_client.node.training.canary import Checkers
from sapo_client.node.training.family_evidence import Assigned
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SEED_BITS
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.types import OwnAnswer

SOLVED: Final = 0.3
"""Own share of right answers from which on a family counts as solved and is rehearsed."""

MAX_TASKS: Final = 384
"""Tasks answered per round; demonstrations are trained at full weight only after a few rounds anyway."""


class Sampling(Protocol):
    """Interface that samples completions."""

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """See ``Learning.generate``."""
        ...


class Rehearsal:
    """Samples own answers to own tasks while the learner needs more right ones.

    It needs none before its first demonstrations, so a node that learns alone samples none.

    Args:
        families: number of families in the suite.
        success: own share of right answers in a family, by its index.
        rng: draws the tasks.
        assigned: families that tasks are drawn of; None: all of them, always.

    Attributes:
        missing: number of right answers that the learner wants in addition to those that it holds.
    """

    def __init__(
        self,
        learner: Sampling,
        checkers: Checkers,
        events: EventLog,
        *,
        families: int,
        success: Callable[[int], float],
        rng: random.Random,
        assigned: Assigned | None = None,
    ) -> None:
        self._learner = learner
        self._checkers = checkers
        self._events = events
        self._assigned: Assigned = (lambda: range(families)) if assigned is None else assigned
        self._success = success
        self._rng = rng
        self.missing = 0

    async def answers(self) -> tuple[OwnAnswer, ...]:
        """Return right answers; none if none are missing, or if no family or every family is solved."""
        assigned = self._assigned()
        solved = [family for family in assigned if self._success(family) >= SOLVED]
        if not self.missing or len(solved) in (0, len(assigned)):
            return ()
        count = min(self.missing, MAX_TASKS)
        drawn = [Task(self._rng.choice(solved), self._rng.getrandbits(SEED_BITS)) for _ in range(count)]
        answerable = await posed(self._checkers, drawn)
        prompts = [prompt for _, prompt in answerable]
        generations = await self._learner.generate(prompts, completions_per_prompt=1)
        found = []
        for (task, prompt), generation in zip(answerable, generations, strict=True):
            if generation.refusal is not None:
                continue
            (completion,) = generation.completions
            if await is_right(self._checkers, task, completion, self._on_failure):
                found.append(OwnAnswer(prompt, completion, task.family))
        return tuple(found)

    def _on_failure(self, task: Task, error: CheckFailed) -> None:
        self._events.write("rehearsal_failed", family=task.family, detail=str(error))


async def posed(checkers: Checkers, tasks: Iterable[Task]) -> list[tuple[Task, str]]:
    """Return the tasks with their prompts, without those whose seed has no item."""
    found = []
    for task in tasks:
        try:
            found.append((task, await checkers.prompt(task)))
        except CheckFailed:
            continue
    return found


async def is_right(
    checkers: Checkers, task: Task, completion: bytes, on_failure: Callable[[Task, CheckFailed], None]
) -> bool | None:
    """Return whether an own completion is right, False if the check fails, None if this node was too busy.

    Args:
        on_failure: called if it cannot be checked.
    """
    try:
        return (await checkers.check(task, [completion])).rewards == (1.0,)
    except CheckFailed as error:
        on_failure(task, error)
        return None if error.reason.decides_nothing else False
