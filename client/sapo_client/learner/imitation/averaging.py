"""Two sets of weights: the student's, which supervised steps train, and their average, which is the policy.

A rate at which a family is learnt from few texts throws the weights about, so that for a while the policy
forgets what it knew. The exponential moving average over the steps (Polyak and Juditsky 1992) does not follow
these swings: it keeps what it knew and learns what the student learns, some steps later (docs/experiment.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from sapo_client.learner.snapshot import copies, write


class AveragedWeights:
    """A student beside a policy.

    Args:
        parameters: the policy's trained ones.
        decay: weight of the average so far in each step's new average, 0 to below 1; at 0 the policy is the
            student.

    Attributes:
        student: its weights, in the order of the parameters; None while they are the policy's.
    """

    def __init__(self, parameters: Sequence[Tensor], decay: float) -> None:
        self.student: list[Tensor] | None = None
        self._parameters = list(parameters)
        self._decay = decay
        self._average: list[Tensor] = []

    @contextmanager
    def training_student(self) -> Iterator[None]:
        """Give the parameters the student's weights inside the context, and the average's after it."""
        if not self._decay:
            yield
            return
        with self.student_in_place() as policy:
            self._average = policy  # what the context ends with
            try:
                yield
            finally:
                self.student, self._average = copies(self._parameters), []

    @contextmanager
    def student_in_place(self) -> Iterator[list[Tensor]]:
        """Give the parameters the student's weights inside the context; yield those that come back."""
        policy = copies(self._parameters)
        if self.student is not None:
            write(self.student, self._parameters)
        try:
            yield policy
        finally:
            write(policy, self._parameters)

    @torch.no_grad()
    def add(self) -> None:
        """Add the student's weights to the average, after one of its steps."""
        if self._average:
            for average, parameter in zip(self._average, self._parameters, strict=True):
                average.mul_(self._decay).add_(parameter, alpha=1.0 - self._decay)

    @contextmanager
    def training_policy(self) -> Iterator[None]:
        """Move the student by as much as the policy moves inside the context."""
        before = None if self.student is None else copies(self._parameters)
        yield
        if before is not None and self.student is not None:
            with torch.no_grad():
                for weight, now, earlier in zip(self.student, self._parameters, before, strict=True):
                    weight.add_(now).sub_(earlier)

    def drop_student(self) -> None:
        """Forget the student; the next one begins with the policy's weights."""
        self.student = None
