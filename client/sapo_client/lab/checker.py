"""The checkers without their jail, for answers that come from this experiment's own policies.

It calls the very function that the jailed child calls (a test compares the two on every family), in a process
that has the child's PYTHONHASHSEED. What a jail adds is safety from strangers, a deadline, and a pipe's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sapo_protocol.suite import Family
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.jail.child import answer
from sapo_verification.jail.messages import Checked, Failure, Request

REMEMBERED: Final = 4096
"""Every agent scores every rollout: once is enough for all of them."""


class LocalChecker:
    """What a node asks of its `CheckerPool`, answered in this process."""

    def __init__(self, families: tuple[Family, ...]) -> None:
        self._answer = lru_cache(REMEMBERED)(lambda request: answer(families, request))

    async def prompt(self, task: Task) -> str:
        """See ``CheckerPool.prompt``."""
        return (await self.check(task, ())).prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """See ``CheckerPool.check``."""
        reply: Checked | Failure = self._answer(Request(task.family, task.seed, tuple(completions)))
        if isinstance(reply, Failure):
            raise CheckFailed(reply)
        return reply
