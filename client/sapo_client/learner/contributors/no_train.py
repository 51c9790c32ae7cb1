"""Contributor: a backend that answers tasks without training.

The paper (arXiv 2509.08721, section 3) allows nodes that do not train, people among them. Other nodes learn
from what they share; they cannot learn from others, so a contributor draws no external groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Generation
from sapo_client.learner.calls import RunningCall
from sapo_client.learner.report import StepReport
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.types import SampledBatch, VerifiedRollout

if TYPE_CHECKING:
    from trio_typing import TaskStatus


class Answerer(Protocol):
    """Source of answers: a server or a person."""

    async def answer(self, prompt: str, count: int) -> tuple[bytes, ...]:
        """Return at least one and at most ``count`` completions of one prompt, UTF-8."""
        ...


class Contributor:
    """Adapter that gives an answerer the interface of a backend; a step is a round of answers."""

    restarts = 0
    last_death = ""
    call: RunningCall | None = None
    set_aside: tuple[str, ...] = ()

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._steps = 0

    @property
    def step(self) -> int:
        """Number of rounds of answers since the start."""
        return self._steps

    def take_happened(self) -> list[tuple[str, dict[str, Any]]]:
        """Return nothing: there are no checkpoints."""
        return []

    async def run(self, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wait until cancelled: there is no process to run."""
        task_status.started()
        await trio.sleep_forever()

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """Return the answers to every prompt."""
        groups = [await self._answerer.answer(prompt, completions_per_prompt) for prompt in prompts]
        return tuple(Generation(handle, group) for handle, group in enumerate(groups))

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """Count a step and report the rewards of the batch; no policy is trained."""
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
        """Return one answer to every prompt; temperature and seed do not apply to an answerer."""
        return tuple([(await self._answerer.answer(prompt, 1))[0] for prompt in prompts])

    async def checkpoint(self) -> int:
        """Return the step; there is no state to write."""
        return self._steps

    async def keep_good(self) -> None:
        """Do nothing: there is no policy."""

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """Do nothing: there is no policy."""

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Return one answer to every prompt, since others' text does not change an answerer."""
        return await self.evaluate(prompts)

    async def export(self, folder: Path) -> int:
        """Refuse, because there is no model.

        Raises:
            SapoError: always.
        """
        raise SapoError(
            "this node has no model of its own to export",
            hint="export from a node with learner.backend = transformers",
            exit_code=ExitCode.CONFIG,
        )


def _mean(rollouts: Sequence[VerifiedRollout]) -> float:
    """Return the mean reward of rollouts; 0 if there are none."""
    return sum(rollout.mean_reward for rollout in rollouts) / len(rollouts) if rollouts else 0.0
