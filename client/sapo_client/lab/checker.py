"""The checkers without their jail, for answers of this experiment's own policies.

It calls the same function as the jailed child (a test compares the two on every family), in a process with
the child's PYTHONHASHSEED. The jail would add protection against untrusted text, a deadline, and the latency
of a pipe.
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

CACHE_SIZE: Final = 4096
"""Number of cached results: every agent scores every rollout, and they share one computation."""


class LocalChecker:
    """The interface of `CheckerPool`, computed in this process."""

    def __init__(self, families: tuple[Family, ...]) -> None:
        self._answer = lru_cache(CACHE_SIZE)(lambda request: answer(families, request))

    async def prompt(self, task: Task) -> str:
        """See ``CheckerPool.prompt``."""
        return (await self.check(task, ())).prompt

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """See ``CheckerPool.check``."""
        reply: Checked | Failure = self._answer(Request(task.family, task.seed, tuple(completions)))
        if isinstance(reply, Failure):
            raise CheckFailed(reply)
        return reply
