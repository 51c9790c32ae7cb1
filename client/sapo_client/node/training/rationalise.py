"""Rationalisation as in STaR (arXiv 2203.14465): own steps to a given answer.

The policy samples with the answer as a hint in the prompt, and trains on right completions without the hint.
Of another account only the answer to a task is used. A task generator has no steps either, so with the
generator's answers this is an upper bound of what a node can reach without others' text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sapo_client.node.training.canary import Checkers
from sapo_client.node.training.rehearsal import Sampling, is_right
from sapo_client.observe.events import EventLog
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.types import Demonstration

HINT: Final = "(the answer is {answer})"


def hinted(prompt: str, answer: str) -> str:
    """Return a prompt with the answer as a hint after the question, before the final line ends."""
    question = prompt.rstrip("\n")
    return f"{question} {HINT.format(answer=answer)}{prompt[len(question) :]}"


class Rationaliser:
    """Replaces demonstrations by own completions with the same answer."""

    def __init__(self, learner: Sampling, checkers: Checkers, events: EventLog) -> None:
        self._learner = learner
        self._checkers = checkers
        self._events = events

    async def own_solutions(self, shown: Sequence[Demonstration]) -> tuple[Demonstration, ...]:
        """Return the demonstrations with own completions instead of others', without those that were
        wrong."""
        prompts = [hinted(each.prompt, each.answer.decode("utf-8", errors="replace")) for each in shown]
        generations = await self._learner.generate(prompts, completions_per_prompt=1)
        found = []
        for each, generation in zip(shown, generations, strict=True):
            if generation.refusal is not None:
                continue
            (completion,) = generation.completions
            if await is_right(self._checkers, each.task, completion, self._on_failure):
                found.append(replace(each, completion=completion))
        return tuple(found)

    def _on_failure(self, task: Task, error: CheckFailed) -> None:
        self._events.write("rationalisation_failed", family=task.family, detail=str(error))
