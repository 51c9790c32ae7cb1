"""How far the trainer's log-probabilities are from those under which completions were sampled.

Sampler and trainer compute the same function with different programs, precisions, and with overlap on from
weights of different steps. With d = logprob - sampling logprob of a token, before the update:

* mismatch: the mean over tokens of exp(d) - d - 1, an estimate of the KL divergence of the sampler from the
  trainer; 0 for equal programs;
* sequence ratio: the exponential of the sum of d over a completion. A completion whose ratio exceeds a bound
  was too improbable for the sampler to be corrected by the ratio, and is not trained (TRL's
  ``sequence_mask``, with the same bound by default).

Shapes: B rows (completions) of a micro-batch, T tokens of the longest one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sapo_client.learner.batch import TrainingRow


@dataclass(frozen=True, slots=True)
class MismatchSummary:
    """Mismatch of a batch's own completions.

    Attributes:
        mean: over all of their tokens; 0 without any.
        masked: number of completions that were not trained for their ratio.
    """

    mean: float = 0.0
    masked: int = 0


def note_drift(rows: Sequence[TrainingRow], logprobs: Tensor, old: Tensor, mask: Tensor) -> None:
    """Fill in the drift of sampled rows at their first forward pass; later passes change nothing.

    Args:
        rows: of the micro-batch.
        logprobs: under the policy as it is now, (B, T), detached.
        old: of the sampler, (B, T).
        mask: which tokens are real, (B, T).
    """
    if not any(row.sampled and row.drift is None for row in rows):
        return
    difference = torch.where(mask, logprobs - old, 0.0).double()
    mismatches = (torch.exp(difference) - difference - 1.0).sum(1).tolist()
    for row, mismatch, log_ratio in zip(rows, mismatches, difference.sum(1).tolist(), strict=True):
        if row.sampled and row.drift is None:
            row.drift = (mismatch, log_ratio)


def kept_rows(rows: Sequence[TrainingRow], ratio_cap: float, device: torch.device) -> Tensor:
    """Return which rows are trained, (B,), bool: all but those whose sequence ratio exceeds the cap."""
    return torch.tensor([not _is_masked(row, ratio_cap) for row in rows], device=device)


def summarise_mismatch(rows: Sequence[TrainingRow], ratio_cap: float) -> MismatchSummary:
    """Return the mismatch of the sampled rows of a batch whose drift is known."""
    known = [(row.drift[0], len(row.completion)) for row in rows if row.drift is not None]
    tokens = sum(length for _, length in known)
    total = sum(mismatch for mismatch, _ in known)
    mean = total / tokens if tokens and math.isfinite(total) else 0.0
    return MismatchSummary(mean, sum(_is_masked(row, ratio_cap) for row in rows))


def _is_masked(row: TrainingRow, ratio_cap: float) -> bool:
    """Whether a row's sequence ratio exceeds the cap; 0 is no cap."""
    return bool(ratio_cap) and row.drift is not None and row.drift[1] > math.log(ratio_cap)
