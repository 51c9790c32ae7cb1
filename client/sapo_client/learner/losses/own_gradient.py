"""Gradient agreement: whether training on a completion of another node also improves the own success.

Training raises the probability of another node's right answers and lowers that of its wrong ones. The text
does not show what that does to the own success: padding after right answers, or wrong answers in the format
in which the own policy is right, cost their author nothing. But the gradients of the own groups of this step
and the last ones point to a higher own success. So the weights are moved a little along the mean of these
gradients, and the log-probability of each completion of others is compared before and after. A completion
*agrees* if it became more probable and its advantage is positive, or less probable and its advantage is
negative: to first order, training on it does not undo what the own groups gain. A group that does not agree
as a whole is left out.

This is the sign of the inner product of two gradients, as in A-GEM (arXiv 1812.00420) and in TracIn (arXiv
2002.08484), by a difference of two forward passes in place of a backward pass for each completion.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

from sapo_client.learner.batch import TrainingRow
from sapo_client.learner.ranks.shard import whole_tensor
from sapo_client.learner.snapshot import copies, write

RELATIVE_SHIFT: Final = 1e-4
"""Norm of the move, relative to that of all trained weights. Log-probabilities of completions then change by
some tenths: well above the rounding of 16 bits, and small enough for a linear approximation."""

DECAY: Final = 0.9
"""Decay of the mean per step; the few groups with an advantage in one step are too noisy alone."""

Measure = Callable[[Sequence[TrainingRow]], Sequence[float]]
"""Returns each row's log-probability under the present weights."""


class OwnGradient:
    """Mean of the own groups' gradients, and the test of agreement with it.

    Args:
        parameters: the trained ones.

    Attributes:
        mean: a tensor per parameter; empty before the first own gradient.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = list(parameters)
        self.mean: list[Tensor] = []

    @property
    def is_known(self) -> bool:
        """Whether there is a mean."""
        return bool(self.mean)

    @torch.no_grad()
    def note(self, rows: int) -> None:
        """Add the normalised gradient at the parameters, of ``rows`` own rows, to the mean."""
        gradients = [_gradient(parameter) for parameter in self._parameters]
        slope = _length(gradients)
        if not 0.0 < slope < math.inf:
            return
        if not self.mean:
            self.mean = [torch.zeros_like(gradient) for gradient in gradients]
        for mean, gradient in zip(self.mean, gradients, strict=True):
            mean.mul_(DECAY).add_(gradient * (rows / slope))

    def agreeing(self, rows: Sequence[TrainingRow], measure: Measure) -> list[TrainingRow]:
        """Return the rows that agree with the mean; the others get the weight 0. Without a mean none does.

        Args:
            rows: of others, all completions of each group.
            measure: computes log-probabilities; it is called twice.
        """
        gains = self._gains(rows, measure) if self.mean and rows else [0.0] * len(rows)
        by_group: dict[int, float] = defaultdict(float)
        for row, gain in zip(rows, gains, strict=True):
            by_group[row.group] += gain
        agreeing = []
        for row, gain in zip(rows, gains, strict=True):
            if gain > 0.0 and by_group[row.group] > 0.0:  # NaN compares as false
                agreeing.append(row)
            else:
                row.weight = 0.0
        return agreeing

    def _gains(self, rows: Sequence[TrainingRow], measure: Measure) -> list[float]:
        """Return the increase of each row's advantage times log-probability for a step along the mean."""
        before = measure(rows)
        with self._shifted():
            after = measure(rows)
        return [row.advantage * (now - then) for row, then, now in zip(rows, before, after, strict=True)]

    @contextmanager
    def _shifted(self) -> Iterator[None]:
        """Move the parameters a little against the mean inside the context."""
        with torch.no_grad():
            kept = copies(self._parameters)
            move = RELATIVE_SHIFT * _length(kept) / _length(self.mean)
            for parameter, mean in zip(self._parameters, self.mean, strict=True):
                parameter.sub_(mean, alpha=move)
            try:
                yield
            finally:
                write(kept, self._parameters)


def _length(tensors: Sequence[Tensor]) -> float:
    """Return the joint norm of tensors; of sharded ones, that of the whole tensors."""
    return float(whole_tensor(torch.nn.utils.get_total_norm(tensors)))


def _gradient(parameter: Tensor) -> Tensor:
    """Return the gradient at a parameter; zeros where the rows had none."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
