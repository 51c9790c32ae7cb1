"""Checkers for which an answer says by itself whether it is right."""

from __future__ import annotations

from collections.abc import Sequence

from sapo_client.lab.checker import LocalChecker
from sapo_protocol.tasks import Task
from sapo_verification.jail.messages import Checked
from sapo_verification.suites.catalogue import family


class SelfScored(LocalChecker):
    """Checkers of nano families whose right answer to every task is ``right``.

    Args:
        names: of the families.

    Attributes:
        families: of the tasks whose prompts were requested, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(tuple(family(name, "nano") for name in names))
        self.families: list[int] = []

    async def prompt(self, task: Task) -> str:
        """Return the task's prompt, and record its family."""
        self.families.append(task.family)
        return await super().prompt(task)

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return a reward of 1 for each answer ``right``."""
        return Checked("", tuple(float(text == b"right") for text in completions))
