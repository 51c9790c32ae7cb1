"""One optimizer step from a batch of groups, undone if it meets a number that is not finite."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.batch import TrainingGroup, TrainingRow, micro_batches, training_rows
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy
from sapo_client.learner.report import StepReport
from sapo_client.learner.settings import LearnerSettings
from sapo_verification.likelihood import Yardstick

MAX_GRADIENT_NORM: Final = 1.0
SMALL_PARAMETERS: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class _Update:
    """One pass over the batch: summed loss, gradient norm, tokens outside the clip range."""

    loss: float
    gradient_norm: float
    clipped: int

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


class Trainer:
    """A policy under training: its optimizer, its step count, what its own text is like."""

    def __init__(self, policy: Policy, settings: LearnerSettings) -> None:
        self.policy = policy
        self.parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
        rate = settings.learning_rate or default_learning_rate(self.parameters)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.0)
        self.yardstick = Yardstick()
        self.steps = 0
        self.rollbacks = 0
        self._settings = settings

    def step(self, groups: Sequence[TrainingGroup], *, reencoded: int = 0) -> StepReport:
        """Trains on the groups that have an advantage and reports on all of them."""
        started = time.perf_counter()
        rows = training_rows(groups)
        self._measure_own(groups)
        update = self._run(rows, groups) if rows else _Update(0.0, 0.0, 0)
        self.steps += 1
        self.rollbacks += not update.is_finite
        return self._report(groups, rows, update, reencoded, time.perf_counter() - started)

    def _run(self, rows: list[TrainingRow], groups: Sequence[TrainingGroup]) -> _Update:
        """All passes over the batch, or none of them."""
        before = self._snapshot() if self._settings.passes > 1 else None
        update = _Update(0.0, 0.0, 0)
        for _ in range(self._settings.passes):
            update = self._pass(rows, groups)
            if not update.is_finite:
                self._restore(before)
                break
            self.optimizer.step()
        self.optimizer.zero_grad()
        return update

    def _pass(self, rows: list[TrainingRow], groups: Sequence[TrainingGroup]) -> _Update:
        """Gradients of the whole batch, micro-batch by micro-batch."""
        self.optimizer.zero_grad()
        loss, clipped = 0.0, 0
        for part in micro_batches(rows, self._settings.micro_batch_tokens):
            part_loss, part_clipped = self._backward(part, groups)
            loss, clipped = loss + part_loss, clipped + part_clipped
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, MAX_GRADIENT_NORM)
        return _Update(loss, float(norm), clipped)

    def _backward(self, part: list[TrainingRow], groups: Sequence[TrainingGroup]) -> tuple[float, int]:
        device = self.policy.device
        pairs = [(row.prompt, row.completion) for row in part]
        with self._precision():
            logprobs = completion_logprobs(
                self.policy.model, pairs, self.policy.pad, self._settings.temperature
            )
        old, mask = _old_logprobs(part, logprobs.detach())
        advantages = torch.tensor([row.advantage for row in part], device=device)
        losses = grpo.token_losses(logprobs, old, advantages) * self._weights(part)[:, None]
        if self._settings.length_normalised:
            count = sum(len(group.completions) for group in groups)
            loss = grpo.mean_over_completions(losses, mask, count)
        else:
            loss = grpo.mean_over_tokens(losses, mask, sum(group.tokens for group in groups))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), grpo.clipped_tokens(logprobs.detach(), old, mask)

    def _measure_own(self, groups: Sequence[TrainingGroup]) -> None:
        """Lets the own samples of a batch extend the yardstick for other nodes' text."""
        for group in groups:
            for logprobs in () if group.external else group.behaviour or ():
                self.yardstick = self.yardstick.after(logprobs)

    def _weights(self, part: list[TrainingRow]) -> Tensor:
        """The weight of each row, (B,); another node's text is weighed once, by the first pass (stage 12)."""
        for row in part:
            if row.weight is None:
                row.weight = self.yardstick.weight(row.old or ())
        return torch.tensor([row.weight for row in part], device=self.policy.device)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.policy.device.type, torch.bfloat16, enabled=self._settings.bfloat16)

    def _snapshot(self) -> tuple[list[Tensor], dict[str, Any]]:
        weights = [parameter.detach().clone() for parameter in self.parameters]
        return weights, copy.deepcopy(self.optimizer.state_dict())

    def _restore(self, before: tuple[list[Tensor], dict[str, Any]] | None) -> None:
        """The state before the step; with one pass nothing has been applied yet."""
        if before is None:
            return
        with torch.no_grad():
            for parameter, weight in zip(self.parameters, before[0], strict=True):
                parameter.copy_(weight)
        self.optimizer.load_state_dict(before[1])

    def _report(
        self,
        groups: Sequence[TrainingGroup],
        rows: list[TrainingRow],
        update: _Update,
        reencoded: int,
        seconds: float,
    ) -> StepReport:
        tokens = sum(len(row.completion) for row in rows)
        local = [group for group in groups if not group.external]
        external = [group for group in groups if group.external]
        return StepReport(
            step=self.steps,
            loss=update.loss if update.is_finite else 0.0,
            mean_reward=_mean_reward(groups),
            local_reward=_mean_reward(local),
            external_reward=_mean_reward(external),
            local_groups=len(local),
            external_groups=len(external),
            external_weight=_external_weight(rows),
            skipped_groups=sum(not group.is_informative for group in groups),
            reencoded_groups=reencoded,
            tokens=tokens,
            gradient_norm=update.gradient_norm if update.is_finite else 0.0,
            clipped_share=update.clipped / tokens if tokens else 0.0,
            entropy=_surprise(local),
            rolled_back=not update.is_finite,
            rollbacks=self.rollbacks,
            seconds=seconds,
        )


def default_learning_rate(parameters: Sequence[Tensor]) -> float:
    """The rate that was measured for policies of this size; the paper's 1e-3 destroys all of them.

    1e-4 for a million parameters (docs/results.md), 1e-6 for half a billion (what genrl 0.3.0 released).
    """
    return 1e-4 if sum(parameter.numel() for parameter in parameters) < SMALL_PARAMETERS else 1e-6


def _old_logprobs(part: list[TrainingRow], current: Tensor) -> tuple[Tensor, Tensor]:
    """Old log-probabilities and which places are real, both (B, T); unknown old ones become the current."""
    old = torch.zeros_like(current)
    mask = torch.zeros_like(current, dtype=torch.bool)
    for index, row in enumerate(part):
        length = len(row.completion)
        if row.old is None:
            row.old = tuple(current[index, :length].tolist())
        old[index, :length] = torch.tensor(row.old, device=current.device)
        mask[index, :length] = True
    return old, mask


def _external_weight(rows: Sequence[TrainingRow]) -> float:
    """Mean weight of the trained completions of other nodes; 1 where there are none."""
    weights = [1.0 if row.weight is None else row.weight for row in rows if row.external]
    return sum(weights) / len(weights) if weights else 1.0


def _mean_reward(groups: Sequence[TrainingGroup]) -> float:
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else 0.0


def _surprise(groups: Sequence[TrainingGroup]) -> float:
    """Mean negative log-probability of sampled tokens, an estimate of the policy's entropy per token."""
    known = [value for group in groups for row in group.behaviour or () for value in row]
    return -sum(known) / len(known) if known else 0.0
