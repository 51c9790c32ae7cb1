"""Agreement: which completions of others this node's own groups speak for.

A right answer of another node makes its text likelier, a wrong one makes its text less likely. What that does
to the own success nobody sees from the text: padding behind right answers, or wrong answers in the format in
which the own policy is right, cost their author nothing. But the own groups of this step and the last ones
have gradients, which say what raises the own success. So the weights are moved a little along their mean, and
the log-probability of each completion of others is compared before and after. A completion *agrees* if it
became likelier and its advantage is positive, or less likely and its advantage is negative: to first order,
training it does not lower what the own groups raise. A group whose completions together do not agree is left
out whole.

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
"""Length of the move, relative to that of all trained weights. Log-probabilities of completions change by
some tenths then: well above the rounding of 16 bits, and well below what bends the slope."""

DECAY: Final = 0.9
"""Of the mean at each step: of a step's four own groups few have an advantage, and one alone says little."""

Measure = Callable[[Sequence[TrainingRow]], Sequence[float]]
"""Returns each row's log-probability under the weights as they are."""


class OwnGradient:
    """Mean of the own groups' gradients, and what agrees with it.

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
        """Add the gradient at the parameters, of so many own rows, to the mean.

        Its length does not count, which depends on how losses are scaled.
        """
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
            measure: of log-probabilities; it is called twice.
        """
        gains = self._gains(rows, measure) if self.mean and rows else [0.0] * len(rows)
        by_group: dict[int, float] = defaultdict(float)
        for row, gain in zip(rows, gains, strict=True):
            by_group[row.group] += gain
        agreeing = []
        for row, gain in zip(rows, gains, strict=True):
            if gain > 0.0 and by_group[row.group] > 0.0:  # neither is true of what is not a number
                agreeing.append(row)
            else:
                row.weight = 0.0
        return agreeing

    def _gains(self, rows: Sequence[TrainingRow], measure: Measure) -> list[float]:
        """Return by how much each row's advantage times log-probability grows with a step along the mean."""
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
    """Return the norm of tensors taken together; of sharded ones, of the whole tensors."""
    return float(whole_tensor(torch.nn.utils.get_total_norm(tensors)))


def _gradient(parameter: Tensor) -> Tensor:
    """Return the gradient at a parameter; zeros where the rows had none."""
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
