"""A contributor: it answers tasks and learns nothing.

The paper (arXiv 2509.08721, section 3) allows for nodes that do not train, people among them. Others learn
from what they share; what others share is of no use to them, so a contributor draws no external groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Generation
from sapo_client.learner.report import StepReport
from sapo_protocol.identifiers import ContentId
from sapo_verification.types import SampledBatch, VerifiedRollout

if TYPE_CHECKING:
    from trio_typing import TaskStatus


class Answerer(Protocol):
    """Whoever answers: a server, a person."""

    async def answer(self, prompt: str, count: int) -> tuple[bytes, ...]:
        """At most so many completions of one prompt, UTF-8; at least one."""
        ...


class Contributor:
    """An answerer behind the interface of a learner; a step is a round of answers."""

    restarts = 0

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._steps = 0

    @property
    def step(self) -> int:
        """Rounds of answers since the start."""
        return self._steps

    async def run(self, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Waits until cancelled: there is no process to look after."""
        task_status.started()
        await trio.sleep_forever()

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """The answers, prompt by prompt."""
        groups = [await self._answerer.answer(prompt, completions_per_prompt) for prompt in prompts]
        return tuple(Generation(handle, group) for handle, group in enumerate(groups))

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """A step that changes nothing, with the rewards of the batch."""
        self._steps += 1
        return StepReport(
            step=self._steps,
            loss=0.0,
            mean_reward=_mean([*batch.local, *batch.external]),
            local_reward=_mean(batch.local),
            external_reward=_mean(batch.external),
            local_groups=len(batch.local),
            external_groups=len(batch.external),
            external_weight=1.0,
            external_weights=(1.0,) * len(batch.external),
            skipped_groups=len(batch.groups),
            reencoded_groups=0,
            tokens=0,
            gradient_norm=0.0,
            clipped_share=0.0,
            entropy=0.0,
            rolled_back=False,
            rollbacks=0,
            halvings=0,
            seconds=0.0,
        )

    async def evaluate(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> tuple[bytes, ...]:
        """One answer to every prompt; how it is found is the answerer's own affair."""
        return tuple([(await self._answerer.answer(prompt, 1))[0] for prompt in prompts])

    async def checkpoint(self) -> int:
        """Nothing is learned, so nothing is kept."""
        return self._steps

    async def keep_good(self) -> None:
        """Nothing changes, so there is nothing to go back to."""

    async def roll_back(self) -> None:
        """As ``keep_good``."""

    async def export(self, folder: Path) -> int:
        """Never returns.

        Raises:
            SapoError: there is no model here.
        """
        raise SapoError(
            "this node answers without a model of its own, so there is none to export",
            hint="export from a node with learner.backend = transformers",
            exit_code=ExitCode.CONFIG,
        )


def _mean(rollouts: Sequence[VerifiedRollout]) -> float:
    return sum(rollout.mean_reward for rollout in rollouts) / len(rollouts) if rollouts else 0.0
