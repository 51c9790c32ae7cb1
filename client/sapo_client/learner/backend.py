"""What answers a node's tasks: one interface, whether something is trained behind it or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from sapo_client.learner.report import StepReport
from sapo_protocol.identifiers import ContentId
from sapo_verification.types import SampledBatch

if TYPE_CHECKING:
    from trio_typing import TaskStatus


class LearnerCrashed(Exception):
    """The child died during a call; nothing of the call is left, the learner is being started again."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One prompt's group.

    Attributes:
        handle: names the sampled tokens inside the learner until they are trained.
        completions: the texts, UTF-8.
    """

    handle: int
    completions: tuple[bytes, ...]


class Learning(Protocol):
    """Who samples and trains; what a round needs.

    Every call may raise ``LearnerCrashed`` (nothing of it is left, call again) or ``SapoError``.
    """

    @property
    def step(self) -> int:
        """Steps so far, over all starts."""
        ...

    @property
    def restarts(self) -> int:
        """How often it died and came back."""
        ...

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """A group for every prompt."""
        ...

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """One step on a batch."""
        ...


class Backend(Learning, Protocol):
    """A source of completions that may learn from batches, and what a node does with it over its life."""

    async def run(self, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps it alive until cancelled; started when it can be called."""
        ...

    async def evaluate(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> tuple[bytes, ...]:
        """One answer to every prompt, the best one at temperature 0."""
        ...

    async def checkpoint(self) -> int:
        """Keeps what was learned; returns the step."""
        ...

    async def keep_good(self) -> None:
        """Keeps the policy as it is now, to go back to."""
        ...

    async def roll_back(self) -> None:
        """Puts back the policy that was last kept as good."""
        ...

    async def export(self, folder: Path) -> int:
        """Writes the model as transformers load it; returns the step."""
        ...
