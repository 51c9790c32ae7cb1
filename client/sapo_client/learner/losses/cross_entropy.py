"""Cross-entropy on demonstrations: token losses as pure functions of log-probabilities.

Shapes: B rows (completions) of a micro-batch, T tokens of the longest one.

The loss of a token of probability p under the trained policy is ``-w(p) log p``. The weight is a constant for
the gradient, so it only decides which tokens count:

* ``plain``: 1, the likelihood of the text;
* ``luffy`` (LUFFY, arXiv 2504.14945): the shape of the gradient of p / (p + g) with g = 0.1, which is
  g p / (p + g)^2, divided by its maximum 1/4. It is 1 at p = 0.1 and 1/3 at p = 1 and at p = 0.01: tokens
  that the policy has learnt already and tokens that are almost impossible count less;
* ``chord`` (CHORD, arXiv 2508.11408): p (1 - p), 0 at both ends, at most 1/4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import torch
from torch import Tensor

TokenWeighting = Literal["plain", "luffy", "chord"]

LUFFY_OFFSET: Final = 0.1
"""The paper's gamma."""


def cross_entropy(logprobs: Tensor, weighting: TokenWeighting) -> Tensor:
    """Return every token's weighted negative log-likelihood: (B, T) to (B, T)."""
    weights = TOKEN_WEIGHTS[weighting](logprobs.detach().exp())
    return -weights * logprobs


def plain_weights(probabilities: Tensor) -> Tensor:
    """Return weight 1 for every token."""
    return torch.ones_like(probabilities)


def luffy_weights(probabilities: Tensor) -> Tensor:
    """Return g p / (p + g)^2 divided by its maximum, which is 1/4 and lies at p = g."""
    return 4.0 * LUFFY_OFFSET * probabilities / (probabilities + LUFFY_OFFSET) ** 2


def chord_weights(probabilities: Tensor) -> Tensor:
    """Return p (1 - p)."""
    return probabilities * (1.0 - probabilities)


TOKEN_WEIGHTS: Final[Mapping[TokenWeighting, Callable[[Tensor], Tensor]]] = {
    "plain": plain_weights,
    "luffy": luffy_weights,
    "chord": chord_weights,
}
"""Weights of tokens as functions of their probabilities, (B, T) to (B, T)."""
