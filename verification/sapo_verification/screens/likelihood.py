"""Likelihood (stage 12, R12.1): how far a completion is from anything that this node's policy would say.

Gradient on text that a policy finds impossible is what breaks it (INTELLECT-2, arXiv 2505.07291), and text
that no model wrote looks like that. But strangers run other models, and the right answer to a hard question
is improbable exactly where it teaches most. So the screen is a weight between 0 and 1 in the loss, never a
penalty, and it begins far out.

A completion is judged by its hardest tokens: the mean log-probability of the least probable tenth, at least
four of them, for one odd token is chance and a planted sentence must not drown in a long text. The yardstick
is the same figure over this policy's own samples, as a running mean and deviation: the weight is 1 down to
three deviations below the mean and falls to 0 at six.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HARDEST_SHARE: Final = 0.1
HARDEST_LEAST: Final = 4

FULL_WEIGHT_DEVIATIONS: Final = 3.0
NO_WEIGHT_DEVIATIONS: Final = 6.0

LEAST_DEVIATION: Final = 2.0
"""Nats. A policy that has become sure of itself has almost none, and would hear nobody any more. With this
floor a token of one in four hundred still counts in full, one in a hundred and sixty thousand not at all."""

MEMORY: Final = 512
"""Own completions that the yardstick remembers: some ten rounds."""

LEAST_SAMPLES: Final = 64
"""Before so many own completions were seen there is no yardstick, and every weight is 1."""


def hardest_tokens(logprobs: Sequence[float]) -> float:
    """Return the mean log-probability of a completion's least probable tokens, in nats; 0 of an empty one."""
    count = min(len(logprobs), max(HARDEST_LEAST, math.ceil(HARDEST_SHARE * len(logprobs))))
    return math.fsum(sorted(logprobs)[:count]) / count if count else 0.0


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Running mean and variance of ``hardest_tokens`` over own completions, and how many there were."""

    mean: float = 0.0
    variance: float = 0.0
    samples: int = 0

    def after(self, logprobs: Sequence[float]) -> "Yardstick":
        """Return the yardstick with one more own completion; one that is not finite leaves it as it is."""
        value = hardest_tokens(logprobs)
        if not logprobs or not math.isfinite(value):
            return self
        share = 1.0 / min(self.samples + 1, MEMORY)
        offset = value - self.mean
        mean = self.mean + share * offset
        variance = (1.0 - share) * (self.variance + share * offset * offset)
        return Yardstick(mean, variance, self.samples + 1)

    def weight(self, logprobs: Sequence[float]) -> float:
        """Return the weight of a stranger's completion, 0 to 1."""
        if self.samples < LEAST_SAMPLES or not logprobs:
            return 1.0
        value = hardest_tokens(logprobs)
        if math.isnan(value):
            return 0.0
        deviation = max(LEAST_DEVIATION, math.sqrt(self.variance))
        below = (self.mean - value) / deviation
        span = NO_WEIGHT_DEVIATIONS - FULL_WEIGHT_DEVIATIONS
        return min(1.0, max(0.0, (NO_WEIGHT_DEVIATIONS - below) / span))
