"""Gradients of a loss over many rows, computed in micro-batches that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.learner.batch import TrainingRow, micro_batches
from sapo_client.learner.cpu.fast_forward import is_fast
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.memory import is_out_of_memory
from sapo_client.learner.policy import Policy
from sapo_client.learner.watchdog import Watchdog

MAX_GRADIENT_NORM: Final = 1.0
"""The header of ``grpo.py`` lists it among the deviations."""

RowLoss = Callable[[list[TrainingRow]], tuple[Tensor, float]]
"""Returns a micro-batch's part of the loss, a scalar, and of a figure that is added up beside it."""


@dataclass(frozen=True, slots=True)
class Accumulated:
    """Result of a backward pass over all rows.

    Attributes:
        loss: sum of the micro-batches' parts.
        figure: the same of the figure beside the loss.
        norm: of the gradient, before gradient clipping.
    """

    loss: float
    figure: float
    norm: float


class GradientAccumulator:
    """Leaves the clipped gradient of a loss at the trained parameters.

    Args:
        policy: whose model is trained.
        parameters: the trained ones.
        watchdog: memory plan.
        bfloat16: whether products are computed in bfloat16; None: on CUDA only.
    """

    def __init__(
        self, policy: Policy, parameters: Sequence[Tensor], watchdog: Watchdog, *, bfloat16: bool | None
    ) -> None:
        self._policy = policy
        self._parameters = parameters
        self._watchdog = watchdog
        self._bfloat16 = bfloat16

    def compute(self, rows: Sequence[TrainingRow], loss: RowLoss) -> Accumulated:
        """Compute the gradient over rows, shortest first; if memory runs out, in smaller micro-batches.

        Raises:
            SapoError: a single row does not fit into memory.
        """
        while True:
            try:
                with self._watchdog.training():
                    return self._accumulate(rows, loss)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # after the handler, because until its end the error keeps the failed attempt's tensors alive
            self._watchdog.halve(rows)

    def micro_batches(self, rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
        """Yield the rows, shortest first, in micro-batches that fit."""
        if not rows:
            return iter(())
        with autocast(self._policy, self._bfloat16):
            fast = is_fast(self._policy.model)
        tokens = self._watchdog.tokens(rows)
        padding = self._watchdog.max_padding(fast=fast)
        return micro_batches(rows, tokens, padding, shared_prompts=fast)

    def clear(self) -> None:
        """Remove the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def _accumulate(self, rows: Sequence[TrainingRow], row_loss: RowLoss) -> Accumulated:
        """Add up the gradients over the micro-batches, then clip their norm."""
        self.clear()
        total, figure = 0.0, 0.0
        for part in self.micro_batches(rows):
            loss, addend = row_loss(part)
            loss.backward()  # type: ignore[no-untyped-call]
            total, figure = total + float(loss.detach()), figure + addend
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT_NORM)
        return Accumulated(total, figure, float(norm))


def row_logprobs(
    policy: Policy, model: Any, rows: Sequence[TrainingRow], *, temperature: float, bfloat16: bool | None
) -> Tensor:
    """Return log-probabilities of the rows' completions under a model, (B, T); zero beyond their ends.

    Args:
        policy: its device and padding.
        model: of the policy, or a reference.
        rows: of a micro-batch.
        temperature: the logits are divided by it.
        bfloat16: whether products are computed in bfloat16; None: on CUDA only.
    """
    pairs = [(row.prompt, row.completion) for row in rows]
    with autocast(policy, bfloat16):
        return completion_logprobs(model, pairs, policy.pad, temperature)


def token_mask(rows: Sequence[TrainingRow], like: Tensor) -> Tensor:
    """Return which of a micro-batch's tokens are real, shaped as ``like``, (B, T)."""
    lengths = torch.tensor([len(row.completion) for row in rows], device=like.device)
    return torch.arange(like.shape[1], device=like.device) < lengths[:, None]


def autocast(policy: Policy, bfloat16: bool | None) -> AbstractContextManager[Any]:
    """Return the context in which products are computed in bfloat16, if that is wanted; None: on CUDA."""
    device = policy.device.type
    return torch.autocast(device, torch.bfloat16, enabled=device == "cuda" if bfloat16 is None else bfloat16)
