"""Group-relative policy optimisation, as pure functions of tensors.

Shapes: G completions of one group, B rows of a micro-batch, T longest completion of it.

For a task's group of rewards r_1 .. r_G the advantage of completion i is (r_i - mean r) / std r
(DeepSeekMath, arXiv 2402.03300, section 4.1). Each token's loss is the clipped surrogate

    - min(rho A, clip(rho, 1 - 0.2, 1 + 0.28) A),    rho = exp(logprob - old logprob),

with the asymmetric range of DAPO (arXiv 2503.14476) that the SAPO paper uses. A KL term is optional; its
weight there, and by default here, is 0.

Deviations from the SAPO paper (arXiv 2509.08721), all of them:

* the end-of-text token is a token like any other and is trained; the released code strips it;
* own completions are trained on the very ids that were sampled, with the log-probabilities they were sampled
  under; the released code decodes and tokenizes them again, which moves token boundaries;
* log-probabilities are of the tempered policy, the one that sampled; at temperature 1 this is no difference;
* groups without advantage are not computed, local ones neither, as long as there is no KL term: their
  gradient is zero. They still count in the mean's denominator, so leaving them out changes nothing;
* the standard deviation is the sample's (over G - 1), as in TRL and genrl; the paper does not say;
* rho is also bounded above where the advantage is negative (``RATIO_CAP``; INTELLECT-2, arXiv 2505.07291,
  calls it two-sided clipping): text that this policy finds impossible cannot blow a step up;
* of other nodes' text rho is clipped to the range on both sides whatever the sign of the advantage: once an
  update has moved such a token out of the range, it has no gradient any more;
* other nodes' rewards may be measured against this node's own success in the task's family instead of against
  each other (``baseline.py``); their author composes the group, so he would choose their advantages;
* other nodes' completions carry a likelihood weight between 0 and 1 in their loss; what it takes away goes to
  nobody else, for denominators do not change;
* the mean is over all tokens of the batch (DAPO) by default, or over each completion's tokens first (GRPO);
* a batch may be cut into mini-batches, each with its own update; old log-probabilities are then those from
  before the first one, and each mini-batch's mean is over its even part of the batch's denominator;
* gradients are clipped to norm 1 and the optimizer is AdamW without weight decay; the paper says Adam;

As in the paper: external text has this policy's current log-probabilities as the old ones, for its author's
are not sent.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

CLIP_LOW: Final = 0.2
CLIP_HIGH: Final = 0.28
RATIO_CAP: Final = 4.0
"""Far outside the clip range, so only outliers on the negative side notice it."""

_STD_FLOOR: Final = 1e-6


def group_advantages(rewards: Tensor) -> Tensor:
    """Normalised rewards of one group: (G,) to (G,); zeros where all rewards are equal."""
    if rewards.numel() < 2 or bool((rewards == rewards[0]).all()):
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / (rewards.std() + _STD_FLOOR)


def token_losses(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, external: Tensor | None = None
) -> Tensor:
    """The clipped surrogate of every token, negated: (B, T), (B, T), (B,) to (B, T).

    Args:
        external: (B,), which rows are clipped on both sides; none are by default.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    advantage = advantages[:, None]
    plain = ratio.clamp(max=RATIO_CAP) * advantage
    clipped = ratio.clamp(1.0 - CLIP_LOW, 1.0 + CLIP_HIGH) * advantage
    surrogate = torch.minimum(plain, clipped)
    return -surrogate if external is None else -torch.where(external[:, None], clipped, surrogate)


def reference_divergence(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """An estimate, never negative, of every token's KL divergence from a reference: (B, T), (B, T) to (B, T).

    The third estimator of J. Schulman, "Approximating KL divergence" (2020), as in GRPO. It is unbiased for
    the policy's own samples alone; of other nodes' text it is a pull towards the reference, no divergence.
    """
    log_ratio = reference_logprobs - logprobs
    return torch.exp(log_ratio) - log_ratio - 1.0


def mean_over_tokens(losses: Tensor, mask: Tensor, batch_tokens: float) -> Tensor:
    """This micro-batch's part of the mean over all tokens of the batch: (B, T), (B, T) to a scalar."""
    return (losses * mask).sum() / batch_tokens


def mean_over_completions(losses: Tensor, mask: Tensor, batch_completions: float) -> Tensor:
    """This micro-batch's part of the mean over completions of token means: (B, T), (B, T) to a scalar."""
    per_completion = (losses * mask).sum(1) / mask.sum(1).clamp_min(1)
    return per_completion.sum() / batch_completions


def clipped_tokens(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> int:
    """How many real tokens' ratios lie outside the clip range."""
    ratio = torch.exp(logprobs - old_logprobs)
    outside = (ratio < 1.0 - CLIP_LOW) | (ratio > 1.0 + CLIP_HIGH)
    return int((outside & mask).sum())
