"""What a step's groups and rows amount to: the figures of its report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sapo_client.learner.batch import TrainingGroup, TrainingRow
from sapo_client.learner.report import StepReport


@dataclass(frozen=True, slots=True)
class Update:
    """One pass over the batch.

    Attributes:
        loss: of its mini-batches, the mean.
        gradient_norm: of the last mini-batch, before clipping.
        clipped: tokens outside the clip range.
    """

    loss: float = 0.0
    gradient_norm: float = 0.0
    clipped: int = 0

    @property
    def is_finite(self) -> bool:
        """Whether the numbers are numbers."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def summarise(
    groups: Sequence[TrainingGroup],
    rows: Sequence[TrainingRow],
    update: Update,
    *,
    step: int,
    rollbacks: int,
    reencoded: int,
    halvings: int,
    seconds: float,
) -> StepReport:
    """The report of a step."""
    tokens = sum(len(row.completion) for row in rows)
    local = [group for group in groups if not group.external]
    external = [group for group in groups if group.external]
    return StepReport(
        step=step,
        loss=update.loss if update.is_finite else 0.0,
        mean_reward=_mean_reward(groups),
        local_reward=_mean_reward(local),
        external_reward=_mean_reward(external),
        local_groups=len(local),
        external_groups=len(external),
        external_weight=_mean_weight([row for row in rows if row.external]),
        external_weights=tuple(
            _mean_weight([row for row in rows if row.group == index])
            for index, group in enumerate(groups)
            if group.external
        ),
        skipped_groups=sum(not group.is_informative for group in groups),
        reencoded_groups=reencoded,
        tokens=tokens,
        gradient_norm=update.gradient_norm if update.is_finite else 0.0,
        clipped_share=update.clipped / tokens if tokens else 0.0,
        entropy=_surprise(local),
        rolled_back=not update.is_finite,
        rollbacks=rollbacks,
        halvings=halvings,
        seconds=seconds,
    )


def _mean_weight(rows: Sequence[TrainingRow]) -> float:
    """Mean likelihood weight of trained completions; 1 where there are none."""
    weights = [1.0 if row.weight is None else row.weight for row in rows]
    return sum(weights) / len(weights) if weights else 1.0


def _mean_reward(groups: Sequence[TrainingGroup]) -> float:
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else 0.0


def _surprise(groups: Sequence[TrainingGroup]) -> float:
    """Mean negative log-probability of sampled tokens, an estimate of the policy's entropy per token."""
    known = [value for group in groups for row in group.behaviour or () for value in row]
    return -sum(known) / len(known) if known else 0.0
