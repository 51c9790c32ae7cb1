"""The watchdog of training memory: micro-batches sized before the start, and halved instead of dying."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from sapo_client.learner.adapters import base_of
from sapo_client.learner.batch import TrainingRow
from sapo_client.learner.memory import (
    GIB,
    available_bytes,
    give_back_freed_memory,
    halved,
    kept_bytes,
    plan_memory,
)
from sapo_client.learner.policy import Policy
from sapo_client.learner.settings import LearnerSettings

FAST_TOKENS: Final = 8192
"""Of a micro-batch; more are no faster."""

MOST_PADDING: Final = {"cpu": 256, "cuda": 4096}
"""Tokens of a micro-batch that only fill up; more cost more than another micro-batch does."""

MOST_OWN_PADDING: Final = 1024
"""Likewise in training's own forward pass, where attention alone computes them."""

CPU_BUDGET_BYTES: Final = 4 * GIB
"""Of activations at once, for a CPU's memory is others', too."""


class Watchdog:
    """What one policy's training may take, and how much of a batch it may take at once.

    Args:
        logprobs: differentiable log-probabilities of rows under the policy's model.
        trained: how many numbers are trained.

    Raises:
        SapoError: training does not fit.
    """

    def __init__(
        self,
        policy: Policy,
        settings: LearnerSettings,
        logprobs: Callable[[Sequence[TrainingRow]], Tensor],
        trained: int,
    ) -> None:
        self._policy = policy
        self._checkpointing = settings.gradient_checkpointing
        self._logprobs = logprobs
        self._most_tokens = settings.micro_batch_tokens or FAST_TOKENS
        self.halvings = 0
        if self._checkpointing:
            policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        available = settings.memory_bytes
        self._plan = plan_memory(
            self._kept_bytes,
            trained=trained,
            available=available_bytes(policy.device) if available is None else available,
            copies=settings.passes * settings.mini_batches > 1,
        )

    def tokens(self, rows: Sequence[TrainingRow]) -> int:
        """Most tokens of a micro-batch of these rows, the widest last."""
        budget = self._plan.budget_bytes
        if self._policy.device.type == "cpu":
            budget = min(budget, CPU_BUDGET_BYTES)
        fitting = self._plan.row.tokens_within(budget, rows[-1].width)
        return min(self._most_tokens, fitting)

    def most_padding(self, *, own_forward: bool) -> int:
        """Tokens of a micro-batch that may only fill up."""
        return MOST_OWN_PADDING if own_forward else MOST_PADDING[self._policy.device.type]

    @contextmanager
    def training(self) -> Iterator[None]:
        """The model as it is trained; where asked for, its layers compute their activations a second time.

        transformers does so in training mode alone, which without dropout is the same function; it turns the
        key-value cache off then, so sampling must not happen in it.
        """
        self._policy.model.train(self._checkpointing)
        try:
            yield
        finally:
            self._policy.model.eval()

    def halve(self, rows: Sequence[TrainingRow]) -> None:
        """Smaller micro-batches from here.

        Raises:
            SapoError: they are single rows already.
        """
        self._most_tokens = halved(self.tokens(rows), rows[-1].width)
        self.halvings += 1
        if self._policy.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            give_back_freed_memory()

    def _kept_bytes(self, width: int) -> float:
        """Bytes for one row; with checkpointing what layers hand on, and one layer at a time in full."""
        end = self._policy.end
        row = TrainingRow((end,) * (width // 2), (end,) * (width - width // 2), 0.0, None)
        parameters = list(self._policy.model.parameters())

        def measured() -> int:
            return kept_bytes(lambda: self._logprobs([row]), parameters)

        if not self._checkpointing:
            return measured()
        config = base_of(self._policy.model).config
        handed_on = float(config.num_hidden_layers * config.hidden_size * width * 4)
        in_full = measured() / config.num_hidden_layers
        with self.training():
            return float(measured() + in_full + handed_on)
