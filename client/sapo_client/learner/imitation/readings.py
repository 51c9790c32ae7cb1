"""How the own policy reads the steps of a demonstration before it is trained on it."""

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
    """Rows of a text whose log-probabilities tell what its steps are worth.

    Attributes:
        steps: tokens of the text before its answer.
        whole: the text after its prompt.
        moved: for each split the steps from there on, after the part of another text before the same split;
            None without another text, or where a split leaves nothing before it.
    """

    steps: int
    whole: TrainingRow
    moved: tuple[TrainingRow | None, ...]

    @classmethod
    def of(cls, text: DemonstrationText, other: DemonstrationText | None) -> Reading:
        """Return the rows of a text with steps, and of what it is compared with."""
        moved = tuple(None if other is None else _moved(text, other, split) for split in SPLITS)
        return cls(text.steps, _row(text.prompt, text.completion), moved)

    @property
    def rows(self) -> list[TrainingRow]:
        """The rows whose log-probabilities are wanted."""
        return [row for row in (self.whole, *self.moved) if row is not None]

    def value(self) -> TextValue:
        """Return what the steps are worth, once every row has its log-probabilities."""
        found = self.whole.old or ()
        steps, answer = found[: self.steps], found[self.steps :]
        likelihood = exp(fmean(steps) + sum(answer))
        dependence = []
        for split, row in zip(SPLITS, self.moved, strict=True):
            own = steps[_place(self.steps, split) :]
            dependence.append(None if row is None else _gain(own, row.old or ()))
        return likelihood, tuple(dependence)


def _moved(text: DemonstrationText, other: DemonstrationText, split: float) -> TrainingRow | None:
    """Return a text's steps from a split on, after what another one has before it; None if it has none."""
    first, others = _place(text.steps, split), _place(other.steps, split)
    if split and not (first and others):
        return None
    return _row((*other.prompt, *other.completion[:others]), text.completion[first : text.steps])


def _place(steps: int, split: float) -> int:
    return int(steps * split)


def _row(prompt: tuple[int, ...], completion: tuple[int, ...]) -> TrainingRow:
    return TrainingRow(prompt, completion, 0.0, None)


def _gain(own: Sequence[float], elsewhere: Sequence[float]) -> float:
    """Return the nats by which tokens are likelier in their place than elsewhere."""
    return sum(own) - sum(elsewhere)
