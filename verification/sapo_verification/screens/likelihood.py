"""Likelihood (stage 12, R12.1): how improbable a completion is under this node's policy.

Gradients on text that is almost impossible under a policy break it (INTELLECT-2, arXiv 2505.07291), and text
that no model wrote is like that. But other nodes run other models, and the right answer to a hard question is
improbable exactly where most can be learned from it. So the screen is a weight between 0 and 1 in the loss,
never a penalty, and it falls below 1 only far from the mean.

A completion is measured by its hardest tokens: the mean log-probability of the least probable tenth, at least
four of them, because one unusual token is chance and a planted sentence must not be averaged away in a long
text. The reference is the same figure over this policy's own samples, as a running mean and deviation: the
weight is 1 down to three deviations below the mean and falls to 0 at six.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HARDEST_SHARE: Final = 0.1
HARDEST_LEAST: Final = 4

FULL_WEIGHT_DEVIATIONS: Final = 3.0
NO_WEIGHT_DEVIATIONS: Final = 6.0

MIN_DEVIATION: Final = 2.0
"""Nats. A policy with little entropy has almost no deviation and would accept no external text any more. With
this minimum a token of probability 1/400 still counts in full, one of 1/160,000 not at all."""

MEMORY: Final = 512
"""Own completions that the reference covers: some ten rounds."""

MIN_SAMPLES: Final = 64
"""Before this many own completions were measured there is no reference, and every weight is 1."""


def hardest_tokens(logprobs: Sequence[float]) -> float:
    """Return the mean log-probability of a completion's least probable tokens, in nats; 0 of an empty one."""
    count = min(len(logprobs), max(HARDEST_LEAST, math.ceil(HARDEST_SHARE * len(logprobs))))
    return math.fsum(sorted(logprobs)[:count]) / count if count else 0.0


@dataclass(frozen=True, slots=True)
class LogprobStatistics:
    """Running mean and variance of ``hardest_tokens`` over the own completions, and their number."""

    mean: float = 0.0
    variance: float = 0.0
    samples: int = 0

    def after(self, logprobs: Sequence[float]) -> "LogprobStatistics":
        """Return the statistics with one more own completion; a value that is not finite changes nothing."""
        value = hardest_tokens(logprobs)
        if not logprobs or not math.isfinite(value):
            return self
        share = 1.0 / min(self.samples + 1, MEMORY)
        offset = value - self.mean
        mean = self.mean + share * offset
        variance = (1.0 - share) * (self.variance + share * offset * offset)
        return LogprobStatistics(mean, variance, self.samples + 1)

    def weight(self, logprobs: Sequence[float]) -> float:
        """Return the weight of another node's completion, 0 to 1."""
        if self.samples < MIN_SAMPLES or not logprobs:
            return 1.0
        value = hardest_tokens(logprobs)
        if math.isnan(value):
            return 0.0
        deviation = max(MIN_DEVIATION, math.sqrt(self.variance))
        below = (self.mean - value) / deviation
        span = NO_WEIGHT_DEVIATIONS - FULL_WEIGHT_DEVIATIONS
        return min(1.0, max(0.0, (NO_WEIGHT_DEVIATIONS - below) / span))
