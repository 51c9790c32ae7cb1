"""Losses of own completions by the name that the setting ``loss`` gives: functions of log-probabilities.

Shapes: B rows (completions) of a micro-batch, T tokens of the longest one.

With rho = exp(logprob - old logprob) of a token, A the row's advantage and sg a constant for the gradient:

* ``dapo`` (DAPO, arXiv 2503.14476): -min(rho A, clip(rho, 0.8, 1.28) A), mean over all tokens of the batch;
* ``dr_grpo`` (Dr. GRPO, arXiv 2503.20783): the same tokens' losses, added up and divided by the number of
  completions times the longest completion, a constant, so that neither a text's length nor its group's
  spread decides how much it counts: A is r - mean r, not divided by the standard deviation;
* ``gspo`` (GSPO, arXiv 2507.18071): one ratio s for a whole completion, the exponential of the mean of
  logprob - old logprob over its tokens, clipped to [1 - 3e-4, 1 + 4e-4]; mean over completions;
* ``cispo`` (MiniMax-M1, arXiv 2506.13585): -sg(min(rho, 5)) A logprob, so that no token loses its gradient
  for having moved; mean over all tokens of the batch. The bound 5 is ScaleRL's (arXiv 2510.13786).

``dapo`` and ``cispo`` have TRL's ``loss_type`` of the same name, ``dr_grpo`` too (with ``scale_rewards``
none), ``gspo`` is TRL's ``grpo`` with ``importance_sampling_level`` sequence; a test compares all of them.
Two deviations: ``dapo`` and ``dr_grpo`` bound rho above where A is negative (``grpo.RATIO_CAP``, TRL's
``delta``), and ``gspo`` compares with the sampler's own log-probabilities, whose rounding alone leaves its
narrow range where sampler and trainer are different programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from sapo_client.learner import grpo

LossName = Literal["dapo", "dr_grpo", "gspo", "cispo"]
Denominator = Literal["tokens", "completions", "places"]

SEQUENCE_CLIP_LOW: Final = 3e-4
SEQUENCE_CLIP_HIGH: Final = 4e-4
"""GSPO's range, which is narrow because the ratio is a mean over a completion."""

WEIGHT_CAP: Final = 5.0

TokenValues = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Function of log-probabilities (B, T), old ones (B, T), advantages (B,) and the mask of tokens (B, T)."""


@dataclass(frozen=True, slots=True)
class LossForm:
    """One form of the loss.

    Attributes:
        token_losses: loss of every token, (B, T).
        outside: which tokens the clip affects whatever the sign of their advantage, (B, T), bool.
        denominator: what the sum of the losses is divided by: the batch's tokens, its completions (after a
            mean over each one's tokens), or its places, completions times the longest completion.
        scaled: whether advantages are divided by the standard deviation of their group.
    """

    token_losses: TokenValues
    outside: TokenValues
    denominator: Denominator
    scaled: bool = True


def surrogate(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the negated clipped surrogate of every token, (B, T)."""
    del mask  # every token for itself
    return grpo.token_losses(logprobs, old, advantages)


def sequence_surrogate(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the negated clipped surrogate of every completion at each of its tokens, (B, T)."""
    ratio = sequence_ratio(logprobs, old, mask)[:, None]
    advantage = advantages[:, None]
    clipped = ratio.clamp(1.0 - SEQUENCE_CLIP_LOW, 1.0 + SEQUENCE_CLIP_HIGH)
    return -torch.minimum(ratio * advantage, clipped * advantage).expand_as(logprobs)


def weighted_likelihood(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the negative log-likelihood of every token, times its bounded ratio and advantage, (B, T)."""
    del mask
    weights = torch.exp(logprobs.detach() - old).clamp(max=WEIGHT_CAP)
    return -weights * advantages[:, None] * logprobs


def sequence_ratio(logprobs: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """Return the exponential of each row's mean difference of log-probabilities: (B, T) thrice to (B,)."""
    return torch.exp(((logprobs - old) * mask).sum(1) / mask.sum(1).clamp_min(1))


def token_outside(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return which real tokens have a ratio outside the clip range, (B, T), bool."""
    del advantages
    ratio = torch.exp(logprobs - old)
    return ((ratio < 1.0 - grpo.CLIP_LOW) | (ratio > 1.0 + grpo.CLIP_HIGH)) & mask


def sequence_outside(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the real tokens of completions whose ratio is outside the clip range, (B, T), bool."""
    del advantages
    ratio = sequence_ratio(logprobs, old, mask)[:, None]
    return ((ratio < 1.0 - SEQUENCE_CLIP_LOW) | (ratio > 1.0 + SEQUENCE_CLIP_HIGH)) & mask


def weight_outside(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return which real tokens have a ratio above the bound, (B, T), bool."""
    del advantages
    return (torch.exp(logprobs - old) > WEIGHT_CAP) & mask


LOSS_FORMS: Final[Mapping[LossName, LossForm]] = {
    "dapo": LossForm(surrogate, token_outside, "tokens"),
    "dr_grpo": LossForm(surrogate, token_outside, "places", scaled=False),
    "gspo": LossForm(sequence_surrogate, sequence_outside, "completions"),
    "cispo": LossForm(weighted_likelihood, weight_outside, "tokens"),
}
