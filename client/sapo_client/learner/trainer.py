"""Training steps on batches of groups; a step with a loss or gradient that is not finite is undone."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.adapters import adapters_disabled, has_adapters
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
from sapo_verification.screens.likelihood import LogprobStatistics

MAX_GRADIENT_NORM: Final = 1.0
"""The header of ``grpo.py`` lists it among the deviations."""

SMALL_PARAMETERS: Final = 20_000_000
"""Fewer trained parameters than this get the learning rate of small policies."""


class Trainer:
    """Policy under training with its optimizer and statistics.

    Args:
        policy: what is trained, in place.
        settings: of the learner.

    Attributes:
        policy: as given.
        parameters: the trained parameters.
        optimizer: AdamW over them.
        logprob_statistics: how likely this policy finds its own samples; weighs other nodes' text.
        baselines: mean own reward per family.
        steps: number of steps so far, undone ones included.
        rollbacks: number of undone steps.

    Raises:
        SapoError: training does not fit into memory.
    """

    def __init__(self, policy: Policy, settings: LearnerSettings) -> None:
        self.policy = policy
        self.parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
        rate = settings.learning_rate or default_learning_rate(self.parameters)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.0, fused=True)
        self.logprob_statistics = LogprobStatistics()
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
        """Train on the groups that have an advantage and return a report on all groups.

        Args:
            groups: of the batch, own and external.
            reencoded: own groups whose sampled token ids were lost, for the report.

        Raises:
            SapoError: a single row does not fit into memory.
        """
        started = time.perf_counter()
        self._update_statistics(groups)
        rows = training_rows(
            groups,
            all_groups=self._settings.kl_weight > 0,
            baselines=self.baselines if self._settings.own_baseline else None,
        )
        update = self._update(rows, groups) if rows else Update()
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

    def _update(self, rows: list[TrainingRow], groups: Sequence[TrainingGroup]) -> Update:
        """Run all optimisation epochs over the batch; undo all of them if one is not finite."""
        parts = mini_batches(rows, self._settings.mini_batches)
        # a single update is applied only if it is finite, so it never has to be undone
        several = self._settings.passes * len(parts) > 1
        before = Snapshot.take(self.parameters, self.optimizer) if several else None
        if len(parts) > 1:
            self._fill_old_logprobs(rows)  # ratios are relative to the policy before the first update
        size = _denominator(groups, self._settings) / len(parts)
        update = Update()
        for _ in range(self._settings.passes):
            update = self._epoch(parts, size)
            if not update.is_finite:
                if before is not None:
                    before.restore(self.parameters, self.optimizer)
                break
        self.optimizer.zero_grad()
        return update

    def _epoch(self, parts: list[list[TrainingRow]], size: float) -> Update:
        """Update once per mini-batch; stop before the first update that is not finite."""
        total = Update()
        for part in parts:
            update = self._compute_gradients(part, size)
            loss = total.loss + update.loss / len(parts)
            total = Update(loss, update.gradient_norm, total.clipped + update.clipped)
            if not total.is_finite:
                break
            self.optimizer.step()
        return total

    def _compute_gradients(self, rows: list[TrainingRow], size: float) -> Update:
        """Compute a mini-batch's gradients; if memory runs out, start over with smaller micro-batches."""
        while True:
            try:
                with self._watchdog.training():
                    return self._accumulate(rows, size)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # after the handler, because until its end the error keeps the failed attempt's tensors alive
            self._watchdog.halve(rows)

    def _accumulate(self, rows: list[TrainingRow], size: float) -> Update:
        """Add up the gradients of a mini-batch over its micro-batches, then clip their norm."""
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
        with self._autocast():
            fast = is_fast(self.policy.model)
        tokens = self._watchdog.tokens(rows)
        padding = self._watchdog.max_padding(fast=fast)
        return micro_batches(rows, tokens, padding, shared_prompts=fast)

    def _backward(self, part: list[TrainingRow], size: float) -> tuple[float, int]:
        """Run one micro-batch forwards and backwards; return its loss and its number of clipped tokens."""
        logprobs = self._logprobs(self.policy.model, part)
        old, mask = _old_logprobs(part, logprobs.detach())
        losses = self._losses(part, logprobs, old)
        mean = grpo.mean_over_completions if self._settings.length_normalised else grpo.mean_over_tokens
        loss = mean(losses, mask, size)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), grpo.count_clipped_tokens(logprobs.detach(), old, mask)

    def _losses(self, part: list[TrainingRow], logprobs: Tensor, old: Tensor) -> Tensor:
        """Return the weighted loss of every token, (B, T)."""
        device = self.policy.device
        advantages = torch.tensor([row.advantage for row in part], device=device)
        external = torch.tensor([row.external for row in part], device=device)
        losses = grpo.token_losses(logprobs, old, advantages, external)
        if self._reference is not None:
            with torch.no_grad(), self._reference() as model:
                reference = self._logprobs(model, part)
            losses = losses + self._settings.kl_weight * grpo.kl_divergence(logprobs, reference)
        return losses * self._weights(part)[:, None]

    def _logprobs(self, model: Any, part: Sequence[TrainingRow]) -> Tensor:
        """Return log-probabilities of the rows' completions under a model, (B, T)."""
        pairs = [(row.prompt, row.completion) for row in part]
        with self._autocast():
            return completion_logprobs(model, pairs, self.policy.pad, self._settings.temperature)

    @torch.no_grad()
    def _fill_old_logprobs(self, rows: list[TrainingRow]) -> None:
        """Fill in the old log-probabilities of text tokenized here, before the first of several updates."""
        unknown = [row for row in rows if row.old is None]
        for part in self._micro_batches(unknown):
            _old_logprobs(part, self._logprobs(self.policy.model, part))

    def _update_statistics(self, groups: Sequence[TrainingGroup]) -> None:
        """Update statistics and baselines, by which other nodes' text is weighed, with the own samples."""
        for group in groups:
            if group.external:
                continue
            for logprobs in group.behaviour or ():
                self.logprob_statistics = self.logprob_statistics.after(logprobs)
            if group.family is not None:
                self.baselines = self.baselines.after(group.family, group.rewards)

    def _weights(self, part: list[TrainingRow]) -> Tensor:
        """Return each row's weight, (B,); another node's text is weighed once, in the first forward pass."""
        for row in part:
            if row.weight is None:
                row.weight = self.logprob_statistics.weight(row.old or ())
        return torch.tensor([row.weight for row in part], device=self.policy.device)

    def _autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which products are computed in bfloat16, if the settings say so."""
        device, wanted = self.policy.device.type, self._settings.bfloat16
        return torch.autocast(device, torch.bfloat16, enabled=device == "cuda" if wanted is None else wanted)


def default_learning_rate(parameters: Sequence[Tensor]) -> float:
    """Return the learning rate that works for policies of this size; the paper's 1e-3 ruins all of them.

    1e-4 for a million parameters (docs/results.md), 1e-6 for half a billion (as in the release of genrl
    0.3.0).
    """
    return 1e-4 if sum(parameter.numel() for parameter in parameters) < SMALL_PARAMETERS else 1e-6


def _reference(model: Any) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function whose context gives the reference model: without its adapters, or a frozen copy."""
    if has_adapters(model):
        return lambda: adapters_disabled(model)
    frozen = copy.deepcopy(model).requires_grad_(False)
    return lambda: nullcontext(frozen)


def _denominator(groups: Sequence[TrainingGroup], settings: LearnerSettings) -> int:
    """Return the batch's number of completions or of tokens, groups without advantage included."""
    if settings.length_normalised:
        return sum(len(group.completions) for group in groups)
    return sum(group.tokens for group in groups)


def _old_logprobs(part: list[TrainingRow], current: Tensor) -> tuple[Tensor, Tensor]:
    """Return old log-probabilities and the mask of real tokens, both (B, T); fill in rows without old ones.

    Args:
        part: rows of a micro-batch; where ``old`` is None it becomes the current log-probabilities.
        current: log-probabilities under the policy as it is now, (B, T), detached.
    """
    old = torch.zeros_like(current)
    mask = torch.zeros_like(current, dtype=torch.bool)
    for index, row in enumerate(part):
        length = len(row.completion)
        if row.old is None:
            row.old = tuple(current[index, :length].tolist())
        old[index, :length] = torch.tensor(row.old, device=current.device)
        mask[index, :length] = True
    return old, mask
