"""Evaluation of a demonstration's steps under the own policy, before it is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import fmean

from sapo_client.learner.batch import TrainingRow
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.report import TextValue
from sapo_verification.sampling.step_values import SPLITS


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows whose log-probabilities give the value of a text's steps.

    Attributes:
        steps: tokens of the text before its answer.
        whole: the text after its prompt.
        moved: for each split, the steps after it, preceded by the part of another text before the same split;
            None without another text, or if nothing precedes the split.
    """

    steps: int
    whole: TrainingRow
    moved: tuple[TrainingRow | None, ...]

    @classmethod
    def of(cls, text: DemonstrationText, other: DemonstrationText | None) -> Reading:
        """Return the rows of a text with steps, compared with another text of the family."""
        moved = tuple(None if other is None else _moved(text, other, split) for split in SPLITS)
        return cls(text.steps, _row(text.prompt, text.completion), moved)

    @property
    def rows(self) -> list[TrainingRow]:
        """The rows whose log-probabilities are needed."""
        return [row for row in (self.whole, *self.moved) if row is not None]

    def value(self) -> TextValue:
        """Return the value of the steps; every row must have its log-probabilities."""
        found = self.whole.old or ()
        steps, answer = found[: self.steps], found[self.steps :]
        likelihood = exp(fmean(steps) + sum(answer))
        dependence = []
        for split, row in zip(SPLITS, self.moved, strict=True):
            own = steps[_place(self.steps, split) :]
            dependence.append(None if row is None else _gain(own, row.old or ()))
        return likelihood, tuple(dependence)


def _moved(text: DemonstrationText, other: DemonstrationText, split: float) -> TrainingRow | None:
    """Return a text's steps after a split, preceded by another text's part before it; None if that is
    empty."""
    first, others = _place(text.steps, split), _place(other.steps, split)
    if split and not (first and others):
        return None
    return _row((*other.prompt, *other.completion[:others]), text.completion[first : text.steps])


def _place(steps: int, split: float) -> int:
    return int(steps * split)


def _row(prompt: tuple[int, ...], completion: tuple[int, ...]) -> TrainingRow:
    return TrainingRow(prompt, completion, 0.0, None)


def _gain(own: Sequence[float], elsewhere: Sequence[float]) -> float:
    """Return the mean log-probability gain of the tokens, in nats, over the same tokens after other text."""
    return sum(own) - sum(elsewhere)
