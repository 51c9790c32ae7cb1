"""Interface of a backend, which samples answers to a node's tasks and may train on batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import trio

from sapo_client.learner.calls import RunningCall
from sapo_client.learner.report import StepReport
from sapo_client.learner.wire import Refusal
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.types import SampledBatch

if TYPE_CHECKING:
    from trio_typing import TaskStatus


class LearnerCrashed(Exception):
    """The learner's process ended during a call; the call had no effect, and the process is being
    restarted."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Group of completions of one prompt.

    Attributes:
        handle: number of the sampled tokens inside the learner, valid until they are trained.
        completions: texts, UTF-8; none if the prompt is refused.
        refusal: why there are no completions; None if there are.
    """

    handle: int
    completions: tuple[bytes, ...]
    refusal: Refusal | None = None


class Learning(Protocol):
    """Sampling and training, as a round needs them.

    Every call may raise ``LearnerCrashed`` (it had no effect, call again) or ``SapoError``.
    """

    @property
    def step(self) -> int:
        """Number of steps so far, over all starts."""
        ...

    @property
    def restarts(self) -> int:
        """Number of restarts after its process ended unexpectedly."""
        ...

    @property
    def last_death(self) -> str:
        """Reason of the last unexpected end; empty before the first."""
        ...

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """Return a group for every prompt."""
        ...

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """Train one step on a batch.

        Args:
            batch: own and external groups, practised tasks, demonstrations.
            handles: handles of own groups by content id, of practised ones by the content id of their hint.
        """
        ...


class SamplingAhead(Protocol):
    """Sampling of the next round during a training step."""

    async def train_ahead(
        self,
        batch: SampledBatch,
        handles: Mapping[ContentId, int],
        prompts: Sequence[str],
        *,
        completions_per_prompt: int,
    ) -> tuple[StepReport, tuple[Generation, ...]]:
        """Train one step as ``Learning.train`` does; return also a group for every prompt.

        The groups are sampled meanwhile, with the weights before the step.
        """
        ...


class Backend(Learning, Protocol):
    """Backend with all calls that a node makes, from start to export."""

    @property
    def call(self) -> RunningCall | None:
        """The call that waits for its reply, if there is one."""
        ...

    @property
    def set_aside(self) -> tuple[str, ...]:
        """Names of the damaged checkpoints that the last start skipped."""
        ...

    def take_happened(self) -> list[tuple[str, dict[str, Any]]]:
        """Return and remove name and fields of the events that calls have caused since the last call of
        this."""
        ...

    async def run(self, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; reports the start when calls are possible."""
        ...

    async def evaluate(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> tuple[bytes, ...]:
        """Return one completion per prompt, greedy at temperature 0."""
        ...

    async def checkpoint(self) -> int:
        """Write a checkpoint; return its step."""
        ...

    async def keep_good(self) -> None:
        """Keep the present policy, to which ``roll_back`` returns."""
        ...

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """Return to the policy that was last kept as good.

        Args:
            planters: accounts whose demonstrations are dropped; if empty, all demonstrations since then are.
        """
        ...

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Train the policy last kept as good on the own groups since then, and keep the result as good.

        Returns:
            Its greedy completion of every prompt; the present policy does not change.
        """
        ...

    async def export(self, folder: Path) -> int:
        """Write the model so that transformers loads it; return the step."""
        ...
