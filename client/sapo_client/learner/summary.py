"""Computation of a training step's report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from sapo_client.learner.batch import TrainingGroup, TrainingRow
from sapo_client.learner.imitation.supervised import SupervisedUpdate
from sapo_client.learner.losses.mismatch import MismatchSummary
from sapo_client.learner.report import StepReport


@dataclass(frozen=True, slots=True)
class Update:
    """Result of one optimisation epoch over the batch.

    Attributes:
        loss: mean over the mini-batches.
        gradient_norm: of the last mini-batch, before gradient clipping.
        clipped: number of tokens whose ratio is outside the clip range.
        mismatch: between sampler and trainer.
    """

    loss: float = 0.0
    gradient_norm: float = 0.0
    clipped: int = 0
    mismatch: MismatchSummary = field(default_factory=MismatchSummary)

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient norm are finite."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def summarise(
    groups: Sequence[TrainingGroup],
    rows: Sequence[TrainingRow],
    update: Update,
    supervised: SupervisedUpdate,
    *,
    step: int,
    rollbacks: int,
    reencoded: int,
    halvings: int,
    seconds: float,
    held: int,
) -> StepReport:
    """Return the report of a step.

    Args:
        groups: of the batch, in its order.
        rows: the trained completions.
        update: of the last optimisation epoch.
        supervised: update on demonstrations.
        step: number of the step, from 1.
        rollbacks: steps undone so far.
        reencoded: own groups whose sampled token ids were lost.
        halvings: of the micro-batch so far.
        seconds: wall time of the step.
        held: demonstrations in the buffer.
    """
    tokens = sum(len(row.completion) for row in rows)
    local, external = ([each for each in groups if each.external is kind] for kind in (False, True))
    return StepReport(
        step=step,
        loss=update.loss if update.is_finite else 0.0,
        mean_reward=_mean_reward(groups),
        local_reward=_mean_reward(local),
        external_reward=_mean_reward(external),
        local_groups=len(local),
        external_groups=len(external),
        external_weight=_mean_weight([row for row in rows if row.external]),
        external_weights=_external_weights(groups, rows),
        skipped_groups=sum(not group.is_informative for group in groups),
        reencoded_groups=reencoded,
        tokens=tokens,
        gradient_norm=update.gradient_norm if update.is_finite else 0.0,
        clipped_share=update.clipped / tokens if tokens else 0.0,
        entropy=_mean_surprisal(local),
        rolled_back=not (update.is_finite and supervised.is_finite),
        rollbacks=rollbacks,
        halvings=halvings,
        seconds=seconds,
        mismatch=update.mismatch.mean,
        masked=update.mismatch.masked,
        age=_mean_age(local),
        demonstrations=supervised.texts,
        demonstrations_held=held,
        demonstration_loss=supervised.nats,
        demonstration_families={str(family): count for family, count in supervised.families.items()},
    )


def _external_weights(groups: Sequence[TrainingGroup], rows: Sequence[TrainingRow]) -> tuple[float, ...]:
    """Return the mean weight of each external group, in the batch's order."""
    return tuple(
        _mean_weight([row for row in rows if row.group == index])
        for index, group in enumerate(groups)
        if group.external
    )


def _mean_age(groups: Sequence[TrainingGroup]) -> float:
    """Return the mean number of steps since groups were sampled; 0 if there are none."""
    return fmean(group.age for group in groups) if groups else 0.0


def _mean_weight(rows: Sequence[TrainingRow]) -> float:
    """Return the mean likelihood weight of trained completions; 1 if there are none."""
    weights = [1.0 if row.weight is None else row.weight for row in rows]
    return sum(weights) / len(weights) if weights else 1.0


def _mean_reward(groups: Sequence[TrainingGroup]) -> float:
    """Return the mean reward of all completions; 0 if there are none."""
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else 0.0


def _mean_surprisal(groups: Sequence[TrainingGroup]) -> float:
    """Return the mean negative log-probability of sampled tokens, an estimate of the entropy per token."""
    known = [value for group in groups for row in group.behaviour or () for value in row]
    return -sum(known) / len(known) if known else 0.0
