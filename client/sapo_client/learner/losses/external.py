"""Losses of other nodes' text: pure functions of log-probabilities, advantages, rewards, baselines, weights.

Shapes: B rows (completions) of a micro-batch, T tokens of the longest one.

Own rows always have the loss of ``grpo.token_losses``. Rows of other nodes have the loss that the setting
``external_loss`` names; the batch's mean has the same denominator in all cases. With p the trained policy's
probability of a token, A the row's advantage, r its reward and sg a constant for the gradient:

* ``reinforce``: w (-clip(rho) A), w the likelihood weight of the row, rho the ratio clipped on both sides;
* ``negative_weighted``: the same, with w only where A < 0, because the right answer to a hard question is
  improbable exactly where most can be learned from it;
* ``tapered``: -A f(p) with f(p) = p / (p + 0.1) (LUFFY, arXiv 2504.14945), without clip; A is relative to
  this node's own mean reward in the family;
* ``positive``: -mu [r = 1] sg(p (1 - p)) log p (CHORD, arXiv 2508.11408), mu falling from 0.5 to 0.05 by a
  cosine; wrong answers have no gradient;
* ``capability`` (after HACPO, arXiv 2603.02604): -clip(s, 0.8, 1) sg(clip(s, 0.8, 1)) A / c, where
  s = exp(mean log p - m) compares the whole completion with m, the running mean of log p of own completions;
  c = P_own / P_author within [0.1, 10] and A = (r - c mean r) / std r. The author's success in the
  family is not known here: the mean reward of its group takes its place, so that A is relative to the own
  success unless c is at one of its bounds. Outside the clip there is no gradient.

Where the own success in the family is not known, ``tapered`` takes the advantage that the row has, and
``capability`` takes c = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor

from sapo_client import plugins
from sapo_client.learner import grpo
from sapo_client.learner.baseline import MIN_DEVIATION

ExternalLossName = Literal["reinforce", "negative_weighted", "tapered", "positive", "capability"]

TAPER_OFFSET: Final = 0.1
"""The gamma of LUFFY."""

POSITIVE_START: Final = 0.5
POSITIVE_END: Final = 0.05

CAPABILITY_CLIP: Final = 0.8
CAPABILITY_BOUND: Final = 10.0


@dataclass(frozen=True, slots=True)
class ExternalRows:
    """Rows of a micro-batch as the losses see them; values of own rows are computed and not used.

    Attributes:
        logprobs: of the trained policy, (B, T).
        old: log-probabilities before the update, (B, T).
        mask: which tokens are real, (B, T).
        advantages: of the completions, (B,).
        rewards: of the completions, (B,).
        group_means: mean reward of each completion's group, (B,).
        group_deviations: standard deviation of the group's rewards, (B,).
        own_means: this node's own mean reward in the family, (B,); NaN where it is not known.
        weights: likelihood weights, 0 to 1, (B,).
        own_logprob: running mean over own completions of their mean log-probability per token; NaN before
            the first one.
        progress: share of the horizon of ``positive`` that has passed, 0 to 1.
    """

    logprobs: Tensor
    old: Tensor
    mask: Tensor
    advantages: Tensor
    rewards: Tensor
    group_means: Tensor
    group_deviations: Tensor
    own_means: Tensor
    weights: Tensor
    own_logprob: float
    progress: float


def reinforce(rows: ExternalRows) -> Tensor:
    """Return the clipped surrogate times the likelihood weight, (B, T)."""
    return _surrogate(rows) * rows.weights[:, None]


def negative_weighted(rows: ExternalRows) -> Tensor:
    """Return the clipped surrogate, times the likelihood weight where the advantage is negative, (B, T)."""
    weights = torch.where(rows.advantages < 0, rows.weights, 1.0)
    return _surrogate(rows) * weights[:, None]


def tapered(rows: ExternalRows) -> Tensor:
    """Return -A p / (p + 0.1) with the advantage relative to the own mean reward, (B, T)."""
    own = rows.own_means
    deviation = (own * (1.0 - own)).clamp_min(0.0).sqrt().clamp_min(MIN_DEVIATION)
    advantages = torch.where(own.isnan(), rows.advantages, (rows.rewards - own) / deviation)
    probabilities = rows.logprobs.exp()
    return -advantages[:, None] * probabilities / (probabilities + TAPER_OFFSET)


def positive(rows: ExternalRows) -> Tensor:
    """Return the negative log-likelihood of right answers, weighted by mu p (1 - p), (B, T)."""
    share = 0.5 * (1.0 + math.cos(math.pi * min(1.0, rows.progress)))
    mu = POSITIVE_END + (POSITIVE_START - POSITIVE_END) * share
    probabilities = rows.logprobs.detach().exp()
    weights = mu * probabilities * (1.0 - probabilities) * (rows.rewards == 1.0)[:, None]
    return -weights * rows.logprobs


def capability(rows: ExternalRows) -> Tensor:
    """Return the clipped similarity of whole completions times their advantage, (B, T); see the header.

    All tokens of a row have the row's value, so that each token's gradient is of the size that it has in
    ``reinforce``. Before the first own completion there is nothing to compare with, and the loss is 0.
    """
    if math.isnan(rows.own_logprob):
        return rows.logprobs * 0.0
    relative = rows.own_means / rows.group_means
    relative = torch.where(relative.isnan(), 1.0, relative).clamp(1.0 / CAPABILITY_BOUND, CAPABILITY_BOUND)
    baselines = relative * rows.group_means  # the own mean reward, or nearer to the group's: at most 1
    spread = rows.group_deviations > 0
    advantages = torch.where(spread, (rows.rewards - baselines) / rows.group_deviations.clamp_min(1e-6), 0.0)
    lengths = rows.mask.sum(1).clamp_min(1)
    means = (rows.logprobs * rows.mask).sum(1) / lengths
    clipped = torch.exp(means - rows.own_logprob).clamp(CAPABILITY_CLIP, 1.0)
    values = -clipped * clipped.detach() * advantages / relative
    return values[:, None].expand_as(rows.logprobs)


ExternalLoss = Callable[[ExternalRows], Tensor]

EXTERNAL_LOSSES: Final[Mapping[ExternalLossName, ExternalLoss]] = {
    "reinforce": reinforce,
    "negative_weighted": negative_weighted,
    "tapered": tapered,
    "positive": positive,
    "capability": capability,
}
"""Losses by the name that the setting ``external_loss`` gives."""


@cache
def external_loss(name: str) -> ExternalLoss:
    """Return a built-in loss, or that of a plug-in.

    Raises:
        SapoError: no plug-in has the name, or it cannot be imported.
    """
    if name in EXTERNAL_LOSSES:
        return EXTERNAL_LOSSES[name]  # type: ignore[index]  # the names are these
    loaded: ExternalLoss = plugins.load(plugins.LOSSES, name)
    return loaded


def _surrogate(rows: ExternalRows) -> Tensor:
    external = torch.ones_like(rows.weights, dtype=torch.bool)
    return grpo.token_losses(rows.logprobs, rows.old, rows.advantages, external)
