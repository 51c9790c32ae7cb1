"""Watchdog of training memory: sizes micro-batches before the start and halves them when memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from sapo_client.errors import SapoError
from sapo_client.learner.adapters import base_model
from sapo_client.learner.batch import TrainingRow
from sapo_client.learner.cpu.allocator import return_freed_memory
from sapo_client.learner.memory import (
    GIB,
    MemoryPlan,
    available_bytes,
    halved,
    plan_memory,
    saved_tensor_bytes,
)
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.ranks.memory import MicroBatchTooLarge, RememberedTokens
from sapo_client.learner.ranks.shard import local_tensor
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.optimizers import MOMENT_BYTES

FAST_TOKENS: Final = 8192
"""Tokens of a micro-batch by default; more are not faster."""

MAX_PADDING: Final = {"cpu": 256, "cuda": 4096}
"""Most padding tokens of a micro-batch; more would cost more than another micro-batch."""

MAX_FAST_PADDING: Final = 1024
"""The same for the fast CPU path, in which only attention computes padding."""

COMFORTABLE_ROWS: Final = 8
"""Rows, one group, that must fit at once; if they do not, activations are recomputed unless forbidden."""

USUAL_PROMPT: Final = 256
"""Tokens of a prompt at the level ``easy``, chat template included."""

CPU_BUDGET_BYTES: Final = 4 * GIB
"""Of activations at once, because other processes use a CPU's memory too."""


class Watchdog:
    """Memory plan of one policy's training, and the size of micro-batches under it.

    Args:
        policy: what is trained.
        settings: of the learner.
        logprobs: returns differentiable log-probabilities of rows under the policy's model.
        trained: the trained parameters.
        ranks: of the learner, which agree on the memory that is free.

    Attributes:
        halvings: how often memory ran out.

    Raises:
        SapoError: training does not fit.
    """

    def __init__(
        self,
        policy: Policy,
        settings: LearnerSettings,
        logprobs: Callable[[Sequence[TrainingRow]], Tensor],
        trained: Sequence[Tensor],
        ranks: RankGroup = ALONE,
    ) -> None:
        self._policy = policy
        self._checkpointing = bool(settings.gradient_checkpointing)
        self._logprobs = logprobs
        self._ranks = ranks
        self._remembered = RememberedTokens(settings.directory, ranks)
        self._max_tokens = settings.micro_batch_tokens or FAST_TOKENS
        if ranks.size > 1:
            self._max_tokens = min(self._max_tokens, self._remembered.read() or self._max_tokens)
        self.halvings = 0
        if self._checkpointing:
            self._enable_checkpointing()
        try:
            self._plan = self._planned(settings, trained)
            short = self._plan.budget_bytes < COMFORTABLE_ROWS * self._plan.row.of(
                self._usual_width(settings)
            )
        except SapoError:
            if settings.gradient_checkpointing is not None:
                raise
            short = True
        if settings.gradient_checkpointing is None and short:
            self._enable_checkpointing()
            self._plan = self._planned(settings, trained)

    def tokens(self, rows: Sequence[TrainingRow]) -> int:
        """Return the most tokens of a micro-batch of these rows, of which the last is the longest."""
        budget = self._plan.budget_bytes
        if self._policy.device.type == "cpu":
            budget = min(budget, CPU_BUDGET_BYTES)
        fitting = self._plan.row.tokens_within(budget, rows[-1].width)
        return min(self._max_tokens, fitting)

    def max_padding(self, *, fast: bool) -> int:
        """Return the most padding tokens of a micro-batch, with the fast CPU path or without it."""
        return MAX_FAST_PADDING if fast else MAX_PADDING[self._policy.device.type]

    @contextmanager
    def training(self) -> Iterator[None]:
        """Put the model into training mode if gradient checkpointing is on, and back at the end.

        transformers recomputes activations in training mode only, which without dropout is the same function.
        It turns the key-value cache off then, so sampling must not happen within this context.
        """
        self._policy.model.train(self._checkpointing)
        try:
            yield
        finally:
            self._policy.model.eval()

    def halve(self, rows: Sequence[TrainingRow]) -> None:
        """Halve micro-batches from now on.

        Raises:
            SapoError: they are single rows already.
            MicroBatchTooLarge: there are other ranks, so that this one must be restarted.
        """
        self._max_tokens = halved(self.tokens(rows), rows[-1].width)
        if self._ranks.size > 1:
            self._remembered.write(self._max_tokens)
            raise MicroBatchTooLarge(self._max_tokens)
        self.halvings += 1
        if self._policy.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            return_freed_memory()

    def _available_bytes(self) -> float:
        """Return the bytes that are free for one rank: the least of all, so that all plan or none does."""
        free = available_bytes(self._policy.device)
        if self._policy.device.type == "cpu":
            free /= self._ranks.on_host
        return -float(self._ranks.largest(-int(free)))

    @property
    def checkpointing(self) -> bool:
        """Whether activations are recomputed."""
        return self._checkpointing

    def _enable_checkpointing(self) -> None:
        self._checkpointing = True
        self._policy.model.gradient_checkpointing_enable(
            # nothing here draws at random, and a sampler in another thread does
            gradient_checkpointing_kwargs={"use_reentrant": False, "preserve_rng_state": False}
        )

    def _planned(self, settings: LearnerSettings, trained: Sequence[Tensor]) -> MemoryPlan:
        available = settings.memory_bytes
        return plan_memory(
            self._saved_bytes,
            trained=sum(local_tensor(parameter).numel() for parameter in trained),
            available=self._available_bytes() if available is None else available,
            snapshot=settings.passes * settings.mini_batches > 1,
            optimizers=2 if settings.demonstrations_per_step else 1,
            moment_bytes=MOMENT_BYTES[settings.optimizer],
        )

    def _usual_width(self, settings: LearnerSettings) -> int:
        """Return the tokens of a usual prompt with its longest completion, within the model's window."""
        usual = USUAL_PROMPT + settings.max_new_tokens
        return min(usual, self._policy.window or usual)

    def _saved_bytes(self, width: int) -> float:
        """Return the bytes that autograd saves for one row of ``width`` tokens.

        With gradient checkpointing: what it saves then, all layers' inputs and one layer in full.
        """
        end = self._policy.end
        row = TrainingRow((end,) * (width // 2), (end,) * (width - width // 2), 0.0, None)
        parameters = list(self._policy.model.parameters())

        def measured() -> int:
            return saved_tensor_bytes(lambda: self._logprobs([row]), parameters)

        if not self._checkpointing:
            return measured()
        config = base_model(self._policy.model).config.get_text_config(decoder=True)
        layer_inputs = float(config.num_hidden_layers * config.hidden_size * width * 4)
        one_layer = measured() / config.num_hidden_layers
        with self.training():
            return float(measured() + one_layer + layer_inputs)
