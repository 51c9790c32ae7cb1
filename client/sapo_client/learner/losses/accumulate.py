"""Gradients of a loss over many rows, computed in micro-batches that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

import torch
from torch import Tensor

from sapo_client.learner.batch import TrainingRow, micro_batches
from sapo_client.learner.cpu.fast_forward import is_fast
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.memory import is_out_of_memory
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.ranks.shard import whole_tensor
from sapo_client.learner.sizing.loss_scale import LossScale
from sapo_client.learner.sizing.precision import product_type
from sapo_client.learner.watchdog import Watchdog

MAX_GRADIENT_NORM: Final = 1.0
"""The header of ``grpo.py`` lists it among the deviations."""

T = TypeVar("T")

RowLoss = Callable[[list[TrainingRow]], tuple[Tensor, float]]
"""Returns a micro-batch's part of the loss, a scalar, and of a second figure that is summed."""

RowMeasurement = Callable[[list[TrainingRow]], None]
"""Stores measurements in a micro-batch's rows; it may be called again with the same row."""

FurtherRows = Callable[[], Sequence[TrainingRow]]
"""Returns more rows, shortest first; when it is called the parameters hold the first rows' gradient."""


@dataclass(frozen=True, slots=True)
class Accumulated:
    """Result of a backward pass over all rows.

    Attributes:
        loss: sum of the micro-batches' parts.
        figure: sum of the second figure.
        norm: of the gradient, before gradient clipping.
    """

    loss: float
    figure: float
    norm: float


@dataclass(frozen=True, slots=True)
class DealtPart:
    """One of this rank's micro-batches.

    Attributes:
        rows: shortest first.
        weight: 1; 0 for a row that is computed only because the other ranks compute one more micro-batch.
    """

    rows: list[TrainingRow]
    weight: float


class Gradients(Protocol):
    """Computes gradients of losses over rows, and leaves them at the parameters for an optimizer."""

    @property
    def halvings(self) -> int:
        """How often memory ran out, each time halving the micro-batch."""
        ...

    def compute(
        self, rows: Sequence[TrainingRow], loss: RowLoss, then: FurtherRows | None = None
    ) -> Accumulated:
        """Compute the gradient over rows, shortest first, and over further rows that depend on it."""
        ...

    def measure(self, rows: Sequence[TrainingRow], measurement: RowMeasurement) -> None:
        """Measure this process's share of the rows, shortest first, in micro-batches without gradients."""
        ...

    def clear(self) -> None:
        """Remove the gradients."""
        ...


class GradientAccumulator:
    """Leaves the clipped gradient of a loss at the trained parameters.

    Args:
        policy: whose model is trained.
        parameters: the trained ones.
        watchdog: memory plan.
        bfloat16: whether products are computed in bfloat16; None: see ``product_type``.
        ranks: processes over which rows are divided and gradients summed.
    """

    def __init__(
        self,
        policy: Policy,
        parameters: Sequence[Tensor],
        watchdog: Watchdog,
        *,
        bfloat16: bool | None,
        ranks: RankGroup = ALONE,
    ) -> None:
        self._policy = policy
        self._parameters = parameters
        self._watchdog = watchdog
        self._bfloat16 = bfloat16
        self._ranks = ranks
        self._scale = LossScale(product_type(policy.device, bfloat16))

    @property
    def halvings(self) -> int:
        """How often memory ran out; each time halved the micro-batch."""
        return self._watchdog.halvings

    def compute(
        self, rows: Sequence[TrainingRow], loss: RowLoss, then: FurtherRows | None = None
    ) -> Accumulated:
        """Compute the gradient over rows, shortest first; if memory runs out, in smaller micro-batches.

        All ranks call it with the same rows; each computes its share, and all return the same.

        Args:
            rows: of the batch.
            loss: of a micro-batch.
            then: returns further rows, whose gradient is added.

        Raises:
            SapoError: a single row does not fit into memory.
            MicroBatchTooLarge: memory ran out on one of several ranks.
        """

        def attempt() -> Accumulated:
            with self._watchdog.training():
                return self._accumulate(rows, loss, then)

        while True:
            found = self._within_memory(rows, attempt)
            if self._scale.accepts(found.norm, found.loss):
                return found

    @torch.no_grad()
    def measure(self, rows: Sequence[TrainingRow], measurement: RowMeasurement) -> None:
        """Measure rows, shortest first; if memory runs out, all of them again in smaller micro-batches.

        All ranks call it with the same rows; each measures its share.

        Args:
            rows: to measure.
            measurement: of a micro-batch. A rank that has fewer than another one measures a copy of a row.

        Raises:
            SapoError: a single row does not fit into memory.
            MicroBatchTooLarge: memory ran out on one of several ranks.
        """

        def attempt() -> None:
            for part in self._dealt(rows):
                measurement(part.rows)

        self._within_memory(rows, attempt)

    def clear(self) -> None:
        """Remove the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def _within_memory(self, rows: Sequence[TrainingRow], attempt: Callable[[], T]) -> T:
        """Return the result of an attempt; whenever memory runs out, repeat it with smaller micro-batches."""
        while True:
            try:
                return attempt()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # after the handler, because until its end the error keeps the failed attempt's tensors alive
            self._watchdog.halve(rows)

    def _dealt(self, rows: Sequence[TrainingRow]) -> Iterator[DealtPart]:
        """Yield this rank's share of the rows in micro-batches that fit, as many on each rank.

        All ranks must run equally many forward and backward passes, since each pass gathers weights from all.
        """
        parts = list(self._micro_batches(self._ranks.deal(rows)))
        idle = self._ranks.largest(len(parts)) - len(parts)
        for part in parts:
            yield DealtPart(part, 1.0)
        for _ in range(idle):
            yield DealtPart([replace(rows[0])], 0.0)

    def _micro_batches(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """Yield rows, shortest first, in micro-batches that fit."""
        if not rows:
            return iter(())
        with autocast(self._policy, self._bfloat16):
            fast = is_fast(self._policy.model)
        tokens = self._watchdog.tokens(rows)
        padding = self._watchdog.max_padding(fast=fast)
        return micro_batches(rows, tokens, padding, shared_prompts=fast)

    def _accumulate(
        self, rows: Sequence[TrainingRow], row_loss: RowLoss, then: FurtherRows | None
    ) -> Accumulated:
        """Add up the gradients over the micro-batches, then clip their norm."""
        self.clear()
        total, figure = self._added(rows, row_loss)
        if then is not None and (further := then()):
            more, addend = self._added(further, row_loss)
            total, figure = total + more, figure + addend
        self._scale.unscale(self._parameters)
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT_NORM)
        total, figure = self._ranks.totals(total, figure)
        return Accumulated(total, figure, float(whole_tensor(norm)))

    def _added(self, rows: Sequence[TrainingRow], row_loss: RowLoss) -> tuple[float, float]:
        """Add the gradients over the micro-batches to those at the parameters; return loss and figure."""
        total, figure = 0.0, 0.0
        for part in self._dealt(rows):
            loss, addend = row_loss(part.rows)
            (part.weight * self._scale.value * loss).backward()  # type: ignore[no-untyped-call]
            total, figure = total + part.weight * float(loss.detach()), figure + part.weight * addend
        return total, figure


def row_logprobs(
    policy: Policy, model: Any, rows: Sequence[TrainingRow], *, temperature: float, bfloat16: bool | None
) -> Tensor:
    """Return log-probabilities of the rows' completions under a model, (B, T); zero beyond their ends.

    Args:
        policy: its device and padding.
        model: of the policy, or a reference.
        rows: of a micro-batch.
        temperature: the logits are divided by it.
        bfloat16: whether products are computed in bfloat16; None: see ``product_type``.
    """
    pairs = [(row.prompt, row.completion) for row in rows]
    with autocast(policy, bfloat16):
        states = [row.states for row in rows] if model is policy.model else None
        return completion_logprobs(model, pairs, policy.pad, temperature, states=states)


def token_mask(rows: Sequence[TrainingRow], like: Tensor) -> Tensor:
    """Return which of a micro-batch's tokens are real, shaped as ``like``, (B, T)."""
    lengths = torch.tensor([len(row.completion) for row in rows], device=like.device)
    return torch.arange(like.shape[1], device=like.device) < lengths[:, None]


def autocast(policy: Policy, bfloat16: bool | None) -> AbstractContextManager[Any]:
    """Return the context in which products are computed in 16 bits, as ``product_type`` says."""
    products = product_type(policy.device, bfloat16)
    return torch.autocast(policy.device.type, products or torch.bfloat16, enabled=products is not None)
