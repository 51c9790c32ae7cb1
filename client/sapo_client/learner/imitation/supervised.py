"""Supervised steps: cross-entropy on demonstrations, with an optimizer of its own.

Gradients of policy optimisation and of cross-entropy differ by orders of magnitude, so that in one optimizer
the larger one would determine the step size of the other. The steps train the student's weights. Their
average is the policy, or a candidate beside it (``averaging.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Final

import torch
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.adapters import has_adapters
from sapo_client.learner.batch import TrainingRow, share_measurements
from sapo_client.learner.imitation.averaging import AveragedWeights
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.imitation.readings import Reading
from sapo_client.learner.losses.accumulate import Gradients, row_logprobs, token_mask
from sapo_client.learner.losses.cross_entropy import cross_entropy
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import ALONE, RankGroup
from sapo_client.learner.report import TextValue
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.optimizers import ADAPTER_RATE, make_optimizer

SMALL_PARAMETERS: Final = 20_000_000
"""Fewer trained parameters than this get the learning rates of small policies."""

Draw = tuple[Sequence[DemonstrationText], Sequence[DemonstrationText]]
"""Texts of a supervised step, and own right answers to rehearse beside them."""

MIN_OWN_ANSWERS: Final = 400
"""Least number of own right answers to rehearse, so that none is repeated too often."""

WARMUP_STEPS: Final = 20
"""Steps over which the rate rises, since AdamW's first steps move every weight by the full rate."""


@dataclass(frozen=True, slots=True)
class SupervisedUpdate:
    """Result of supervised steps.

    Attributes:
        texts: number of texts, counted once for each step.
        nats: mean negative log-likelihood of their tokens before the updates, unweighted; 0 without texts.
        families: number of texts by family.
        is_finite: whether all losses and gradients were finite; the first one that was not changed nothing.
    """

    texts: int = 0
    nats: float = 0.0
    families: Mapping[int, int] = field(default_factory=dict)
    is_finite: bool = True

    def and_then(self, later: SupervisedUpdate) -> SupervisedUpdate:
        """Return the result of this and a later step together."""
        texts = self.texts + later.texts
        nats = (self.nats * self.texts + later.nats * later.texts) / texts if texts else 0.0
        families = Counter(self.families) + Counter(later.families)
        return SupervisedUpdate(
            texts, nats, dict(sorted(families.items())), self.is_finite and later.is_finite
        )


class SupervisedTrainer:
    """Trains on demonstrations by cross-entropy.

    Args:
        policy: trained in place.
        parameters: the trained parameters.
        settings: of the learner.
        gradients: computes them in micro-batches.
        optimizer: of the parameters; None makes an AdamW.

    Attributes:
        optimizer: AdamW over the parameters.
        schedule: number, rate and averaging of the steps.
        weights: the student's, the policy's and the candidate's.
    """

    def __init__(
        self,
        policy: Policy,
        parameters: Sequence[Tensor],
        settings: LearnerSettings,
        gradients: Gradients,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._gradients = gradients
        adapted = has_adapters(policy.model)
        whole = list(policy.model.parameters()) if adapted else parameters
        self.schedule = SupervisedSchedule.of(settings, whole, adapted=adapted)
        self.optimizer = optimizer or make_optimizer(parameters, self.schedule.rate, settings.optimizer)
        self.weights = AveragedWeights(parameters, self.schedule.averaging, held_back=settings.held_back)

    def steps(self, draws: Iterable[Draw]) -> SupervisedUpdate:
        """Update the student once for each draw, and its average; stop before one that is not finite.

        Args:
            draws: texts, and own right answers to rehearse beside them.

        Raises:
            SapoError: a single row does not fit into memory.
        """
        total = SupervisedUpdate()
        with self.weights.training_student():
            for texts, rehearsed in draws:
                update = self.step(texts, rehearsed)
                total = total.and_then(update)
                if not update.is_finite:
                    break
                self.weights.add()
        return total

    def step(
        self, texts: Sequence[DemonstrationText], rehearsed: Sequence[DemonstrationText] = ()
    ) -> SupervisedUpdate:
        """Update the weights in place once on all texts; without texts do nothing.

        If loss or gradient are not finite, nothing changes. The learning rate is proportional to the number
        of texts, and full at ``demonstrations_per_step``: AdamW's step does not become smaller with the loss,
        so that otherwise a single text in an empty buffer would move the policy as far as 64 do.

        Args:
            texts: demonstrations.
            rehearsed: own right answers to train beside them; the report's loss covers both.

        Raises:
            SapoError: a single row does not fit into memory.
        """
        if not texts:
            return SupervisedUpdate()
        rows = [TrainingRow(text.prompt, text.completion, 0.0, None) for text in (*texts, *rehearsed)]
        tokens = sum(len(row.completion) for row in rows)
        size = len(rows) if self._settings.length_normalised else tokens
        found = self._gradients.compute(
            sorted(rows, key=lambda row: row.width), lambda part: self._loss(part, size)
        )
        is_finite = isfinite(found.loss) and isfinite(found.norm)
        if is_finite:
            share = min(1.0, len(texts) / self._settings.demonstrations_per_step)
            for group in self.optimizer.param_groups:
                group["lr"] = self.schedule.rate * share * min(1.0, (self._steps + 1) / WARMUP_STEPS)
            self.optimizer.step()
        self._gradients.clear()
        nats = found.figure / tokens if is_finite else 0.0
        return SupervisedUpdate(len(texts), nats, _count_by_family(texts), is_finite)

    def values(self, texts: Sequence[DemonstrationText], ranks: RankGroup = ALONE) -> list[TextValue | None]:
        """Return the value of each text's steps under the averaged weights; None for a text without steps.

        These weights are the candidate's if there is one, since the policy has not been trained on such
        steps.

        Args:
            texts: new demonstrations; each is compared with the next one of its family with another prompt.
            ranks: all ranks make this call with the same texts; each computes its share.

        Raises:
            SapoError: a single row does not fit into memory.
        """
        readings = [
            Reading.of(text, _another(texts, place)) if 0 < text.steps < len(text.completion) else None
            for place, text in enumerate(texts)
        ]
        rows = [row for reading in readings if reading is not None for row in reading.rows]
        by_width = sorted(rows, key=lambda row: row.width)
        with self.weights.candidate_in_place():
            self._gradients.measure(by_width, self._note_logprobs)
        share_measurements(by_width, ranks)
        return [None if reading is None else reading.value() for reading in readings]

    @property
    def _steps(self) -> int:
        """Steps of the optimizer so far, over all starts."""
        return next((int(state["step"]) for state in self.optimizer.state.values()), 0)

    def _logprobs(self, part: Sequence[TrainingRow]) -> Tensor:
        """Return log-probabilities of the rows' completions under the present weights, (B, T)."""
        return row_logprobs(
            self._policy, self._policy.model, part, temperature=1.0, bfloat16=self._settings.bfloat16
        )

    def _note_logprobs(self, part: list[TrainingRow]) -> None:
        """Store the log-probability of each token in the rows."""
        for row, found in zip(part, self._logprobs(part).tolist(), strict=True):
            row.old = tuple(found[: len(row.completion)])

    def _loss(self, part: list[TrainingRow], size: int) -> tuple[Tensor, float]:
        """Return a micro-batch's part of the loss, and the negative log-likelihood of its tokens."""
        logprobs = self._logprobs(part)
        mask = token_mask(part, logprobs)
        losses = cross_entropy(logprobs, self._settings.demonstration_weighting)
        mean = grpo.mean_over_completions if self._settings.length_normalised else grpo.mean_over_tokens
        return mean(losses, mask, size), -float((logprobs.detach() * mask).sum())


@dataclass(frozen=True, slots=True)
class SupervisedSchedule:
    """Number and rate of supervised steps.

    Attributes:
        steps: most supervised steps per training step.
        rate: learning rate.
        averaging: decay of the average of the weights; 0 uses the last weights.
    """

    steps: int
    rate: float
    averaging: float

    def steps_for(self, held: int, per_step: int) -> int:
        """Return the steps of a round: at most so many that each text in the buffer is trained once.

        Repeating few texts would make the policy memorise them and forget the rest.

        Args:
            held: texts in the buffer.
            per_step: texts of a step.
        """
        return min(self.steps, ceil(held / per_step))

    def own_answers(self, per_step: int) -> int:
        """Return how many own right answers to keep: those of two rounds."""
        return max(MIN_OWN_ANSWERS, 2 * self.steps * per_step)

    @classmethod
    def of(
        cls, settings: LearnerSettings, parameters: Sequence[Tensor], *, adapted: bool = False
    ) -> SupervisedSchedule:
        """Return the schedule of the settings, with defaults for the model's size.

        Args:
            settings: of the learner.
            parameters: of the whole model, whose number determines the defaults.
            adapted: whether low-rank adapters are trained instead.
        """
        default = default_schedule(parameters, shows_steps=settings.shows_steps)
        steps, averaging = settings.demonstration_steps, settings.demonstration_averaging
        return cls(
            steps=default.steps if steps is None else steps,
            rate=settings.demonstration_rate or default.rate * (ADAPTER_RATE if adapted else 1.0),
            averaging=default.averaging if averaging is None else averaging,
        )


def default_schedule(parameters: Sequence[Tensor], *, shows_steps: bool) -> SupervisedSchedule:
    """Return the schedule for policies of this size.

    For a million parameters both were measured: bare answers need one step a round (docs/results.md), steps
    need many (docs/experiment-notes.md). For large ones 1e-5 is the usual rate of supervised fine-tuning, too
    low for swings, and one step costs as much as the policy's own update; that was not measured here.
    """
    if sum(parameter.numel() for parameter in parameters) >= SMALL_PARAMETERS:
        return SupervisedSchedule(steps=1, rate=1e-5, averaging=0.0)
    if shows_steps:
        return SupervisedSchedule(steps=20, rate=2e-3, averaging=0.98)
    return SupervisedSchedule(steps=1, rate=3e-4, averaging=0.0)


def _another(texts: Sequence[DemonstrationText], place: int) -> DemonstrationText | None:
    """Return the next text of the same family with another prompt and with steps; None if there is none."""
    text = texts[place]
    for other in (*texts[place + 1 :], *texts[:place]):
        if other.family == text.family and other.prompt != text.prompt and other.steps:
            return other
    return None


def _count_by_family(texts: Sequence[DemonstrationText]) -> dict[int, int]:
    return dict(sorted(Counter(text.family for text in texts).items()))
