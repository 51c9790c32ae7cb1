"""Optimizer steps on a batch of groups, undone if they meet a number that is not finite."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.adapters import has_adapters, starting_model
from sapo_client.learner.baseline import Baselines
from sapo_client.learner.batch import (
    TrainingGroup,
    TrainingRow,
    micro_batches,
    mini_batches,
    training_rows,
)
from sapo_client.learner.cpu.fast_forward import is_fast
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.memory import is_out_of_memory
from sapo_client.learner.policy import Policy
from sapo_client.learner.report import StepReport
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.snapshot import Snapshot
from sapo_client.learner.summary import Update, summarise
from sapo_client.learner.watchdog import Watchdog
from sapo_verification.screens.likelihood import Yardstick

MAX_GRADIENT_NORM: Final = 1.0
SMALL_PARAMETERS: Final = 20_000_000


class Trainer:
    """A policy under training: its optimizer, its step count, what its own text is like and earns."""

    def __init__(self, policy: Policy, settings: LearnerSettings) -> None:
        self.policy = policy
        self.parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
        rate = settings.learning_rate or default_learning_rate(self.parameters)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.0, fused=True)
        self.yardstick = Yardstick()
        self.baselines = Baselines({})
        self.steps = 0
        self.rollbacks = 0
        self._settings = settings
        self._reference = _reference(policy.model) if settings.kl_weight else None
        self._watchdog = Watchdog(
            policy,
            settings,
            lambda rows: self._logprobs(policy.model, rows),
            trained=sum(parameter.numel() for parameter in self.parameters),
        )

    def step(self, groups: Sequence[TrainingGroup], *, reencoded: int = 0) -> StepReport:
        """Trains on the groups that have an advantage and reports on all of them."""
        started = time.perf_counter()
        self._measure_own(groups)
        rows = training_rows(
            groups,
            all_groups=self._settings.kl_weight > 0,
            baselines=self.baselines if self._settings.own_baseline else None,
        )
        update = self._run(rows, groups) if rows else Update()
        self.steps += 1
        self.rollbacks += not update.is_finite
        return summarise(
            groups,
            rows,
            update,
            step=self.steps,
            rollbacks=self.rollbacks,
            reencoded=reencoded,
            halvings=self._watchdog.halvings,
            seconds=time.perf_counter() - started,
        )

    def _run(self, rows: list[TrainingRow], groups: Sequence[TrainingGroup]) -> Update:
        """All passes over the batch, or none of them."""
        parts = mini_batches(rows, self._settings.mini_batches)
        several = self._settings.passes * len(parts) > 1  # with one, nothing is applied before it is finite
        before = Snapshot.take(self.parameters, self.optimizer) if several else None
        if len(parts) > 1:
            self._fill_old(rows)
        size = _denominator(groups, self._settings) / len(parts)
        update = Update()
        for _ in range(self._settings.passes):
            update = self._pass(parts, size)
            if not update.is_finite:
                if before is not None:
                    before.put_back(self.parameters, self.optimizer)
                break
        self.optimizer.zero_grad()
        return update

    def _pass(self, parts: list[list[TrainingRow]], size: float) -> Update:
        """An update per mini-batch, up to the first that is not finite, which is not applied."""
        total = Update()
        for part in parts:
            update = self._gradients(part, size)
            loss = total.loss + update.loss / len(parts)
            total = Update(loss, update.gradient_norm, total.clipped + update.clipped)
            if not total.is_finite:
                break
            self.optimizer.step()
        return total

    def _gradients(self, rows: list[TrainingRow], size: float) -> Update:
        """Gradients of a mini-batch, in smaller micro-batches as often as memory runs out."""
        while True:
            try:
                with self._watchdog.training():
                    return self._accumulate(rows, size)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # behind the handler, for until its end the error holds the failed pass's tensors
            self._watchdog.halve(rows)

    def _accumulate(self, rows: list[TrainingRow], size: float) -> Update:
        """Gradients of a mini-batch, micro-batch by micro-batch."""
        self.optimizer.zero_grad()
        loss, clipped = 0.0, 0
        for part in self._micro_batches(rows):
            part_loss, part_clipped = self._backward(part, size)
            loss, clipped = loss + part_loss, clipped + part_clipped
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, MAX_GRADIENT_NORM)
        return Update(loss, float(norm), clipped)

    def _micro_batches(self, rows: list[TrainingRow]) -> Iterator[list[TrainingRow]]:
        if not rows:
            return iter(())
        with self._precision():
            own_forward = is_fast(self.policy.model)
        tokens = self._watchdog.tokens(rows)
        padding = self._watchdog.most_padding(own_forward=own_forward)
        return micro_batches(rows, tokens, padding, shared_prompts=own_forward)

    def _backward(self, part: list[TrainingRow], size: float) -> tuple[float, int]:
        logprobs = self._logprobs(self.policy.model, part)
        old, mask = _old_logprobs(part, logprobs.detach())
        losses = self._losses(part, logprobs, old)
        mean = grpo.mean_over_completions if self._settings.length_normalised else grpo.mean_over_tokens
        loss = mean(losses, mask, size)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), grpo.clipped_tokens(logprobs.detach(), old, mask)

    def _losses(self, part: list[TrainingRow], logprobs: Tensor, old: Tensor) -> Tensor:
        """Weighted loss of every token, (B, T)."""
        device = self.policy.device
        advantages = torch.tensor([row.advantage for row in part], device=device)
        external = torch.tensor([row.external for row in part], device=device)
        losses = grpo.token_losses(logprobs, old, advantages, external)
        if self._reference is not None:
            with torch.no_grad(), self._reference() as model:
                reference = self._logprobs(model, part)
            losses = losses + self._settings.kl_weight * grpo.reference_divergence(logprobs, reference)
        return losses * self._weights(part)[:, None]

    def _logprobs(self, model: Any, part: Sequence[TrainingRow]) -> Tensor:
        pairs = [(row.prompt, row.completion) for row in part]
        with self._precision():
            return completion_logprobs(model, pairs, self.policy.pad, self._settings.temperature)

    @torch.no_grad()
    def _fill_old(self, rows: list[TrainingRow]) -> None:
        """Old log-probabilities of text tokenized here, from before the first of several updates."""
        unknown = [row for row in rows if row.old is None]
        for part in self._micro_batches(unknown):
            _old_logprobs(part, self._logprobs(self.policy.model, part))

    def _measure_own(self, groups: Sequence[TrainingGroup]) -> None:
        """Lets the own samples of a batch extend yardstick and baselines for other nodes' text."""
        for group in groups:
            if group.external:
                continue
            for logprobs in group.behaviour or ():
                self.yardstick = self.yardstick.after(logprobs)
            if group.family is not None:
                self.baselines = self.baselines.after(group.family, group.rewards)

    def _weights(self, part: list[TrainingRow]) -> Tensor:
        """The weight of each row, (B,); another node's text is weighed once, by the first pass (stage 12)."""
        for row in part:
            if row.weight is None:
                row.weight = self.yardstick.weight(row.old or ())
        return torch.tensor([row.weight for row in part], device=self.policy.device)

    def _precision(self) -> AbstractContextManager[Any]:
        device, wanted = self.policy.device.type, self._settings.bfloat16
        return torch.autocast(device, torch.bfloat16, enabled=device == "cuda" if wanted is None else wanted)


def default_learning_rate(parameters: Sequence[Tensor]) -> float:
    """The rate that was measured for policies of this size; the paper's 1e-3 destroys all of them.

    1e-4 for a million parameters (docs/results.md), 1e-6 for half a billion (what genrl 0.3.0 released).
    """
    return 1e-4 if sum(parameter.numel() for parameter in parameters) < SMALL_PARAMETERS else 1e-6


def _reference(model: Any) -> Callable[[], AbstractContextManager[Any]]:
    """The starting model, at hand for as long as a context lasts: without adapters, or a copy."""
    if has_adapters(model):
        return lambda: starting_model(model)
    frozen = copy.deepcopy(model).requires_grad_(False)
    return lambda: nullcontext(frozen)


def _denominator(groups: Sequence[TrainingGroup], settings: LearnerSettings) -> int:
    """What the mean is over: the batch's completions or its tokens, groups without advantage included."""
    if settings.length_normalised:
        return sum(len(group.completions) for group in groups)
    return sum(group.tokens for group in groups)


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
