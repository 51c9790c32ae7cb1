"""Weights of a policy that learns from demonstrations: the student's, and their average.

With a learning rate at which a family is learnt from few texts the weights oscillate, and the policy forgets
for a while. The exponential moving average over the steps (Polyak and Juditsky 1992) oscillates less: it
retains more, and learns what the student learns some steps later. Meanwhile it may be worse than the old
policy, so it can be kept as a candidate beside the policy until it has been shown to be better
(docs/experiment-notes.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from sapo_client.learner.snapshot import copies, write


class AveragedWeights:
    """A student beside a policy, and the average of the student's weights.

    Args:
        parameters: the policy's trained ones.
        decay: weight of the average so far in each step's new average, 0 to below 1; at 0 the policy is the
            student.
        held_back: whether the average of a new student is a candidate until ``promote``.

    Attributes:
        student: its weights, in the order of the parameters; None while they are the policy's.
        candidate: the average, while it is not the policy; None if it is.
        candidate_steps: steps of the student since the candidate began.
    """

    def __init__(self, parameters: Sequence[Tensor], decay: float, *, held_back: bool = False) -> None:
        self.student: list[Tensor] | None = None
        self.candidate: list[Tensor] | None = None
        self.candidate_steps = 0
        self._parameters = list(parameters)
        self._decay = decay
        self._held_back = held_back
        self._average: list[Tensor] = []

    @contextmanager
    def training_student(self) -> Iterator[None]:
        """Give the parameters the student's weights inside the context, and the policy's after it."""
        if not self._decay:
            yield
            return
        if not self._held_back:
            self.promote()  # may come from a checkpoint of other settings
        elif self.student is None:
            self.candidate, self.candidate_steps = copies(self._parameters), 0
        with self.student_in_place() as policy:
            # the policy is set to the weights at the end of the context
            self._average = policy if self.candidate is None else self.candidate
            try:
                yield
            finally:
                self.student, self._average = copies(self._parameters), []

    @contextmanager
    def student_in_place(self) -> Iterator[list[Tensor]]:
        """Give the parameters the student's weights inside the context; yield those that come back."""
        with self._in_place(self.student) as policy:
            yield policy

    @contextmanager
    def candidate_in_place(self) -> Iterator[None]:
        """Give the parameters the candidate's weights inside the context; without one, do nothing."""
        if self.candidate is None:
            yield
            return
        with self._in_place(self.candidate):
            yield

    @property
    def is_comparable(self) -> bool:
        """Whether there is a candidate in which the steps weigh more than its initial weights."""
        return self.candidate is not None and self.candidate_steps * (1.0 - self._decay) >= 1.0

    @torch.no_grad()
    def add(self) -> None:
        """Add the student's weights to the average, after one of its steps."""
        self.candidate_steps += 1
        if self._average:
            for average, parameter in zip(self._average, self._parameters, strict=True):
                average.mul_(self._decay).add_(parameter, alpha=1.0 - self._decay)

    @contextmanager
    def training_policy(self) -> Iterator[None]:
        """Add the change of the policy's weights inside the context to student and candidate."""
        kept = [each for each in (self.student, self.candidate) if each is not None]
        before = copies(self._parameters) if kept else []
        yield
        with torch.no_grad():
            for weights in kept:
                for weight, now, earlier in zip(weights, self._parameters, before, strict=True):
                    weight.add_(now - earlier)

    def promote(self) -> None:
        """Give the policy the candidate's weights, and let it be the average from now on."""
        if self.candidate is not None:
            write(self.candidate, self._parameters)
            self.candidate = None

    def drop_student(self) -> None:
        """Drop the student and its candidate; the next one begins with the policy's weights."""
        self.student = self.candidate = None

    @contextmanager
    def _in_place(self, weights: Sequence[Tensor] | None) -> Iterator[list[Tensor]]:
        """Give the parameters other weights inside the context; None leaves them. Yield those that return."""
        policy = copies(self._parameters)
        if weights is not None:
            write(weights, self._parameters)
        try:
            yield policy
        finally:
            write(policy, self._parameters)
