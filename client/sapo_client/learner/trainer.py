"""Training steps on batches of groups; a step with a loss or gradient that is not finite is undone."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.adapters import adapters_disabled, has_adapters
from sapo_client.learner.baseline import Baselines, RunningMean
from sapo_client.learner.batch import (
    TrainingGroup,
    TrainingRow,
    mini_batches,
    share_measurements,
    training_rows,
)
from sapo_client.learner.imitation.demonstrations import (
    DemonstrationBuffer,
    DemonstrationText,
    is_solved,
    need,
    own_right_answers,
)
from sapo_client.learner.imitation.supervised import (
    SMALL_PARAMETERS,
    Draw,
    SupervisedTrainer,
    SupervisedUpdate,
)
from sapo_client.learner.losses.accumulate import (
    Accumulated,
    GradientAccumulator,
    Gradients,
    row_logprobs,
    token_mask,
)
from sapo_client.learner.losses.external import ExternalRows, external_loss
from sapo_client.learner.losses.forms import LOSS_FORMS, Denominator
from sapo_client.learner.losses.mismatch import kept_rows, note_drift, summarise_mismatch
from sapo_client.learner.losses.own_gradient import OwnGradient
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.ranks.shard import shard_model
from sapo_client.learner.report import StepReport
from sapo_client.learner.seeds import sampling_seed
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.optimizers import ADAPTER_RATE, make_optimizer
from sapo_client.learner.snapshot import Snapshot
from sapo_client.learner.summary import Update, summarise
from sapo_client.learner.watchdog import Watchdog
from sapo_verification.screens.likelihood import LogprobStatistics


class Trainer:
    """Policy under training with its optimizer and statistics.

    Args:
        policy: what is trained, in place.
        settings: of the learner.
        ranks: processes that make the same steps, over which the model is sharded.

    Attributes:
        policy: as given.
        parameters: the trained parameters.
        optimizer: AdamW over them, as the setting names it.
        logprob_statistics: how likely this policy finds its own samples; weighs other nodes' text.
        baselines: mean own reward per family.
        own_logprob: mean log-probability per token of own completions.
        demonstrations: held for supervised steps.
        own_successes: own right answers, rehearsed in supervised steps.
        supervised: makes the supervised steps.
        own_gradient: mean gradient of own groups, for the agreement test.
        steps: number of steps so far, undone ones included.
        rollbacks: number of undone steps.

    Raises:
        SapoError: training does not fit into memory.
    """

    def __init__(self, policy: Policy, settings: LearnerSettings, ranks: RankGroup = ALONE) -> None:
        self.policy = policy
        self._ranks = ranks
        self.logprob_statistics = LogprobStatistics()
        self.baselines = Baselines({})
        self.own_logprob = RunningMean()
        self.demonstrations = DemonstrationBuffer(settings.demonstration_capacity)
        self.own_successes = DemonstrationBuffer(settings.demonstration_capacity)
        self.steps = 0
        self.rollbacks = 0
        self._settings = settings
        self._form = LOSS_FORMS[settings.loss]
        self._reference: Callable[[], AbstractContextManager[Any]] | None = None
        self._open(policy, settings, ranks)
        self.own_gradient = OwnGradient(self.parameters)

    def _open(self, policy: Policy, settings: LearnerSettings, ranks: RankGroup) -> None:
        """Create the parts that compute gradients and updates."""
        self._reference = _reference(policy.model, ranks) if settings.kl_weight else None
        shard_model(policy.model, ranks)
        self.parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
        rate = settings.learning_rate or default_learning_rate(policy.model)
        self.optimizer = make_optimizer(self.parameters, rate, settings.optimizer)
        self._watchdog = Watchdog(
            policy,
            settings,
            lambda rows: self._logprobs(policy.model, rows),
            trained=self.parameters,
            ranks=ranks,
        )
        self._gradients: Gradients = GradientAccumulator(
            policy, self.parameters, self._watchdog, bfloat16=settings.bfloat16, ranks=ranks
        )
        self.supervised = SupervisedTrainer(policy, self.parameters, settings, self._gradients)

    def step(
        self,
        groups: Sequence[TrainingGroup],
        *,
        demonstrations: Sequence[DemonstrationText] = (),
        judged: Sequence[DemonstrationText] = (),
        rehearsed: Sequence[DemonstrationText] = (),
        forgotten: Collection[tuple[bytes, int]] = (),
        reencoded: int = 0,
    ) -> StepReport:
        """Train on the groups that have an advantage, then on demonstrations, and return a report on all.

        Args:
            groups: of the batch, own and external.
            demonstrations: new ones, which the buffer takes.
            judged: further ones whose steps are judged but not trained.
            rehearsed: own right answers beside the groups'.
            forgotten: authors, with a family each, whose demonstrations are removed and not taken.
            reencoded: own groups whose sampled token ids were lost, for the report.

        Raises:
            SapoError: a single row does not fit into memory.
        """
        started = time.perf_counter()
        self._update_statistics(groups, rehearsed)
        rows = training_rows(
            groups,
            all_groups=self._settings.kl_weight > 0,
            baselines=self.baselines,
            own_baseline=self._settings.own_baseline,
            scaled=self._form.scaled,
        )
        with self.supervised.weights.training_policy():
            update = self._update(rows, groups) if rows else Update()
        # after the update, which reuses what sampling computed with the same weights
        values = self.supervised.values((*demonstrations, *judged), self._ranks)
        supervised = self._update_on_demonstrations(demonstrations, forgotten)
        self.steps += 1
        self.rollbacks += not (update.is_finite and supervised.is_finite)
        report = summarise(
            groups,
            rows,
            update,
            supervised,
            step=self.steps,
            rollbacks=self.rollbacks,
            reencoded=reencoded,
            halvings=self._gradients.halvings,
            seconds=time.perf_counter() - started,
            held=len(self.demonstrations),
        )
        return replace(
            report,
            ranks=self._ranks.size,
            own_answers_held=len(self.own_successes),
            own_answers_missing=self._own_answers_missing() if len(self.demonstrations) else 0,
            step_values=values,
            has_candidate=self.supervised.weights.is_comparable,
        )

    def _update(self, rows: list[TrainingRow], groups: Sequence[TrainingGroup]) -> Update:
        """Run all optimisation epochs over the batch; undo all of them if one is not finite."""
        parts = mini_batches(rows, self._settings.mini_batches)
        # a single update is applied only if it is finite, so it never has to be undone
        several = self._settings.passes * len(parts) > 1
        before = Snapshot.take(self.parameters, self.optimizer) if several else None
        if len(parts) > 1:
            self._fill_old_logprobs(rows)  # ratios are relative to the policy before the first update
        size = self._denominator(groups) / len(parts)
        update = Update()
        for _ in range(self._settings.passes):
            update = self._epoch(parts, size)
            if not update.is_finite:
                if before is not None:
                    before.restore(self.parameters, self.optimizer)
                break
        self._gradients.clear()
        share_measurements(rows, self._ranks)
        return replace(update, mismatch=summarise_mismatch(rows, self._settings.sequence_ratio_cap))

    def _epoch(self, parts: list[list[TrainingRow]], size: float) -> Update:
        """Update once per mini-batch; stop before the first update that is not finite."""
        total = Update()
        for part in parts:
            found = self._gradient(part, size)
            loss = total.loss + found.loss / len(parts)
            total = Update(loss, found.norm, total.clipped + int(found.figure))
            if not total.is_finite:
                break
            self.optimizer.step()
        return total

    def _gradient(self, part: list[TrainingRow], size: float) -> Accumulated:
        """Compute a mini-batch's gradient; with ``agreement``, only of those rows of others that agree."""

        def loss(rows: list[TrainingRow]) -> tuple[Tensor, float]:
            return self._loss(rows, size)

        own, others = ([row for row in part if row.external is kind] for kind in (False, True))
        if not self._settings.agreement or not (others or self.own_gradient.is_known):
            return self._gradients.compute(part, loss)

        def agreeing() -> list[TrainingRow]:
            if own:
                self.own_gradient.note(len(own))
            return self.own_gradient.agreeing(others, self._summed_logprobs)

        if own:
            return self._gradients.compute(own, loss, agreeing)
        self._gradients.clear()  # else the last gradient would be applied again if nothing agrees
        chosen = agreeing()
        return self._gradients.compute(chosen, loss) if chosen else Accumulated(0.0, 0.0, 0.0)

    def _summed_logprobs(self, rows: Sequence[TrainingRow]) -> list[float]:
        """Return each row's log-probability under the policy as it is."""
        sums: dict[int, float] = {}

        def measure(part: list[TrainingRow]) -> None:
            logprobs = self._logprobs(self.policy.model, part)
            of_part = (logprobs * token_mask(part, logprobs)).sum(1).tolist()
            sums.update(zip(map(id, part), of_part, strict=True))

        self._gradients.measure(rows, measure)
        known = [(place, sums[id(row)]) for place, row in enumerate(rows) if id(row) in sums]
        if self._ranks.size > 1:
            known = [each for of_rank in self._ranks.exchange(known) for each in of_rank]
        return [value for _, value in sorted(known)]

    def _loss(self, part: list[TrainingRow], size: float) -> tuple[Tensor, float]:
        """Return a micro-batch's part of the loss and its number of clipped tokens."""
        logprobs = self._logprobs(self.policy.model, part)
        old, mask = _old_logprobs(part, logprobs.detach())
        note_drift(part, logprobs.detach(), old, mask)
        losses = self._losses(part, logprobs, old, mask)
        losses = losses * kept_rows(part, self._settings.sequence_ratio_cap, losses.device)[:, None]
        by_completion = self._mean == "completions"
        mean = grpo.mean_over_completions if by_completion else grpo.mean_over_tokens
        clipped = self._form.outside(logprobs.detach(), old, self._advantages(part), mask)
        return mean(losses, mask, size), int(clipped.sum())

    def _losses(self, part: list[TrainingRow], logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
        """Return the weighted loss of every token, (B, T)."""
        advantages, weights = self._advantages(part), self._weights(part)
        external = torch.tensor([row.external for row in part], device=self.policy.device)
        losses = self._form.token_losses(logprobs, old, advantages, mask)
        if external.any():
            of_others = external_loss(self._settings.external_loss)(
                self._external_rows(part, logprobs, old, mask, advantages=advantages, weights=weights)
            )
            losses = torch.where(external[:, None], of_others, losses)
        if self._reference is not None:
            with torch.no_grad(), self._reference() as model:
                reference = self._logprobs(model, part)
            divergence = grpo.kl_divergence(logprobs, reference) * weights[:, None]
            losses = losses + self._settings.kl_weight * divergence
        return losses

    def _advantages(self, part: list[TrainingRow]) -> Tensor:
        return torch.tensor([row.advantage for row in part], device=self.policy.device)

    @property
    def _mean(self) -> Denominator:
        """Denominator of the loss."""
        return "completions" if self._settings.length_normalised else self._form.denominator

    def _denominator(self, groups: Sequence[TrainingGroup]) -> int:
        """Return the batch's completions, tokens or places, groups without advantage included."""
        if self._mean == "tokens":
            return sum(group.tokens for group in groups)
        completions = sum(len(group.completions) for group in groups)
        return completions * (self._settings.max_new_tokens if self._mean == "places" else 1)

    def _external_rows(
        self,
        part: list[TrainingRow],
        logprobs: Tensor,
        old: Tensor,
        mask: Tensor,
        *,
        advantages: Tensor,
        weights: Tensor,
    ) -> ExternalRows:
        """Return the inputs of the losses of other nodes' text."""
        contexts = [row.context for row in part]
        device = self.policy.device
        return ExternalRows(
            logprobs=logprobs,
            old=old,
            mask=mask,
            advantages=advantages,
            rewards=torch.tensor([context.reward for context in contexts], device=device),
            group_means=torch.tensor([context.group_mean for context in contexts], device=device),
            group_deviations=torch.tensor([context.group_deviation for context in contexts], device=device),
            own_means=torch.tensor([context.own_mean for context in contexts], device=device),
            weights=weights,
            own_logprob=self.own_logprob.mean if self.own_logprob.samples else math.nan,
            progress=self.steps / self._settings.positive_steps,
        )

    def _logprobs(self, model: Any, part: Sequence[TrainingRow]) -> Tensor:
        """Return log-probabilities of the rows' completions under a model, (B, T)."""
        settings = self._settings
        return row_logprobs(
            self.policy, model, part, temperature=settings.temperature, bfloat16=settings.bfloat16
        )

    def _update_on_demonstrations(
        self, shown: Sequence[DemonstrationText], forgotten: Collection[tuple[bytes, int]]
    ) -> SupervisedUpdate:
        """Add new demonstrations of unsolved families, drop those of solved ones, and train on some draws.

        Demonstrations of forgotten authors are removed and not added. Own right answers are trained together
        with them, against catastrophic forgetting.
        """
        settings, buffer = self._settings, self.demonstrations
        buffer.forget_pairs(forgotten)
        new = [text for text in shown if (text.author, text.family) not in forgotten]
        if not settings.demonstrations_per_step:
            return SupervisedUpdate()
        families = buffer.families() | {text.family for text in new}
        solved = {one for one in families if is_solved(self.baselines, one, settings.need_below)}
        buffer.forget(solved)
        for text in new:
            if text.family not in solved:
                buffer.add(text)
        needs = {family: need(self.baselines, family, settings.need_below) for family in families - solved}
        if not any(needs[text.family] for text in buffer):
            self.supervised.weights.drop_student()
            return SupervisedUpdate()
        return self.supervised.steps(self._draws(needs))

    def _draws(self, needs: Mapping[int, float]) -> Iterator[Draw]:
        """Yield the texts of a round's supervised steps, and as many own right answers.

        A policy that has solved a family takes no more texts than it has own right answers to rehearse, so
        that it does not forget that family.
        """
        own, settings = self.own_successes, self._settings
        source = random.Random(sampling_seed(f"{settings.seed}/demonstrations/{self.steps}"))
        known = dict.fromkeys(own.families(), 1.0)
        has_solved = any(is_solved(self.baselines, family, settings.need_below) for family in known)
        per_step = settings.demonstrations_per_step
        count = min(per_step, len(own)) if has_solved else per_step
        for _ in range(self.supervised.schedule.steps_for(len(self.demonstrations), per_step)):
            shown = self.demonstrations.draw(needs, count, source)
            yield shown, own.draw(known, len(shown), source)

    def _own_answers_missing(self) -> int:
        wanted = self.supervised.schedule.own_answers(self._settings.demonstrations_per_step)
        return max(0, min(wanted, self.own_successes.capacity) - len(self.own_successes))

    def _fill_old_logprobs(self, rows: list[TrainingRow]) -> None:
        """Fill in the old log-probabilities of text tokenized here, before the first of several updates."""

        def measure(part: list[TrainingRow]) -> None:
            _old_logprobs(part, self._logprobs(self.policy.model, part))

        unknown = [row for row in rows if row.old is None]
        self._gradients.measure(unknown, measure)
        share_measurements(unknown, self._ranks)

    def _update_statistics(
        self, groups: Sequence[TrainingGroup], rehearsed: Sequence[DemonstrationText]
    ) -> None:
        """Update statistics and baselines, by which other nodes' text is weighed, with the own samples."""
        for text in (*own_right_answers(groups), *rehearsed):
            self.own_successes.add(text)
        for group in groups:
            if group.external:
                continue
            for logprobs in group.behaviour or ():
                self.logprob_statistics = self.logprob_statistics.after(logprobs)
                if logprobs and math.isfinite(mean := fmean(logprobs)):
                    self.own_logprob = self.own_logprob.after([mean])
            if group.family is not None:
                self.baselines = self.baselines.after(group.family, group.rewards)

    def _weights(self, part: list[TrainingRow]) -> Tensor:
        """Return each row's weight, (B,); another node's text is weighed once, in the first forward pass."""
        for row in part:
            if row.weight is None:
                row.weight = self.logprob_statistics.weight(row.old or ())
        return torch.tensor([row.weight for row in part], device=self.policy.device)


def default_learning_rate(model: Any) -> float:
    """Return the learning rate that works for policies of this size; the paper's 1e-3 ruins all of them.

    1e-4 for a million parameters (docs/results.md), 1e-6 for half a billion (as in the release of genrl
    0.3.0), ten times as much for adapters on models of these sizes.
    """
    size = sum(parameter.numel() for parameter in model.parameters())
    return (1e-4 if size < SMALL_PARAMETERS else 1e-6) * (ADAPTER_RATE if has_adapters(model) else 1.0)


def _reference(model: Any, ranks: RankGroup) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function whose context gives the reference model: without its adapters, or a frozen copy."""
    if has_adapters(model):
        return lambda: adapters_disabled(model)
    frozen = copy.deepcopy(model).requires_grad_(False)
    shard_model(frozen, ranks)
    return lambda: nullcontext(frozen)


def _old_logprobs(part: list[TrainingRow], current: Tensor) -> tuple[Tensor, Tensor]:
    """Return old log-probabilities and the mask of real tokens, both (B, T); fill in rows without old ones.

    Args:
        part: rows of a micro-batch; where ``old`` is None it becomes the current log-probabilities.
        current: log-probabilities under the policy as it is now, (B, T), detached.
    """
    old = torch.zeros_like(current)
    for index, row in enumerate(part):
        length = len(row.completion)
        if row.old is None:
            row.old = tuple(current[index, :length].tolist())
        old[index, :length] = torch.tensor(row.old, device=current.device)
    return old, token_mask(part, current)
