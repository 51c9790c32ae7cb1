"""Group-relative policy optimisation, as pure functions of tensors.

Shapes: G completions of one group, B rows (completions) of a micro-batch, T tokens of the longest one.

For a task's group of rewards r_1 .. r_G the advantage of completion i is (r_i - mean r) / std r
(DeepSeekMath, arXiv 2402.03300, section 4.1). Each token's loss is the clipped surrogate

    - min(rho A, clip(rho, 1 - 0.2, 1 + 0.28) A),    rho = exp(logprob - old logprob),

with the asymmetric range of DAPO (arXiv 2503.14476) that the SAPO paper uses. A KL term is optional; its
weight there, and by default here, is 0.

Deviations from the SAPO paper (arXiv 2509.08721), all of them:

* the end-of-text token is trained like any other token; the released code strips it;
* own completions are trained on the token ids that were sampled, with the log-probabilities under which they
  were sampled; the released code decodes and tokenizes them again, which moves token boundaries;
* log-probabilities are those of the tempered policy that sampled; at temperature 1 there is no difference;
* groups without advantage (zero variance of rewards), own ones included, are not computed while there is no
  KL term: their gradient is zero. They still count in the mean's denominator, so the result is the same;
* the standard deviation is the sample's (over G - 1), as in TRL and genrl; the paper does not say;
* rho is also bounded above where the advantage is negative (``RATIO_CAP``; INTELLECT-2, arXiv 2505.07291,
  calls it two-sided clipping), so that text which is nearly impossible under this policy cannot produce a
  huge gradient;
* in other nodes' text rho is clipped to the range on both sides whatever the sign of the advantage: once an
  update has moved such a token out of the range, it has no gradient any more;
* advantages of other nodes' completions may be relative to this node's own mean reward in the task's family
  instead of their group's (``baseline.py``), because the group's author could choose them by composing it;
* other nodes' completions carry a likelihood weight between 0 and 1 in their loss; other completions do not
  gain what the weight removes, because denominators stay the same;
* other nodes' completions may have another loss altogether (``losses/external.py``); this one is the default;
* other accounts' right answers in families where this policy fails may be trained as demonstrations as well,
  by cross-entropy, in an update of its own after this one (``supervised.py``);
* the mean is over all tokens of the batch (DAPO) by default, or over each completion's tokens first (GRPO);
  the setting ``loss`` has other forms for own completions (``losses/forms.py``);
* own completions that the sampler found far less likely than this policy does now are not trained
  (``losses/mismatch.py``);
* a batch may be cut into mini-batches, each with its own update; old log-probabilities are then those from
  before the first one, and each mini-batch's mean has an equal part of the batch's denominator;
* gradients are clipped to norm 1 and the optimizer is AdamW without weight decay; the paper says Adam.

As in the paper: the old log-probabilities of external text are this policy's current ones, because its
author's are not sent.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

CLIP_LOW: Final = 0.2
CLIP_HIGH: Final = 0.28
RATIO_CAP: Final = 4.0
"""Far outside the clip range, so it affects only outliers with a negative advantage."""

_STD_FLOOR: Final = 1e-6


def group_advantages(rewards: Tensor, *, scaled: bool = True) -> Tensor:
    """Return the group-relative advantages of one group's rewards: (G,) to (G,); zeros if all are equal.

    Args:
        rewards: of one group.
        scaled: divide by their standard deviation.
    """
    if rewards.numel() < 2 or bool((rewards == rewards[0]).all()):
        return torch.zeros_like(rewards)
    centred = rewards - rewards.mean()
    return centred / (rewards.std() + _STD_FLOOR) if scaled else centred


def token_losses(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, external: Tensor | None = None
) -> Tensor:
    """Return every token's loss, the negated clipped surrogate, (B, T).

    Args:
        logprobs: of the trained policy, (B, T).
        old_logprobs: of the policy before the update, (B, T); the ratio's denominator.
        advantages: of the completions, (B,).
        external: rows whose ratio is clipped on both sides, (B,); none by default.
    """
    ratio = torch.exp(logprobs - old_logprobs)
    advantage = advantages[:, None]
    unclipped = ratio.clamp(max=RATIO_CAP) * advantage
    clipped = ratio.clamp(1.0 - CLIP_LOW, 1.0 + CLIP_HIGH) * advantage
    surrogate = torch.minimum(unclipped, clipped)
    return -surrogate if external is None else -torch.where(external[:, None], clipped, surrogate)


def kl_divergence(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Estimate every token's KL divergence from a reference policy, never negative: (B, T), (B, T) to (B, T).

    The estimator k3 of J. Schulman, "Approximating KL divergence" (2020), as in GRPO. It is unbiased only for
    the policy's own samples; for other nodes' text it is a penalty that pulls towards the reference.
    """
    log_ratio = reference_logprobs - logprobs
    return torch.exp(log_ratio) - log_ratio - 1.0


def mean_over_tokens(losses: Tensor, mask: Tensor, batch_tokens: float) -> Tensor:
    """Return this micro-batch's part of the mean over all tokens of the batch (DAPO), a scalar.

    Args:
        losses: of tokens, (B, T).
        mask: which of them are real, (B, T).
        batch_tokens: the mean's denominator.
    """
    return (losses * mask).sum() / batch_tokens


def mean_over_completions(losses: Tensor, mask: Tensor, batch_completions: float) -> Tensor:
    """Return this micro-batch's part of the mean over completions of their token means (GRPO), a scalar.

    Args:
        losses: of tokens, (B, T).
        mask: which of them are real, (B, T).
        batch_completions: the mean's denominator.
    """
    per_completion = (losses * mask).sum(1) / mask.sum(1).clamp_min(1)
    return per_completion.sum() / batch_completions
