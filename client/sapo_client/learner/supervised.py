"""Supervised steps: cross-entropy on demonstrations, with an optimizer of its own.

Gradients of policy optimisation and of cross-entropy differ by orders of magnitude, so that moments of both
in one optimizer would let the larger decide the step size of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

import torch
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.batch import TrainingRow
from sapo_client.learner.demonstrations import DemonstrationText
from sapo_client.learner.losses.accumulate import GradientAccumulator, row_logprobs, token_mask
from sapo_client.learner.losses.cross_entropy import cross_entropy
from sapo_client.learner.policy import Policy
from sapo_client.learner.settings import LearnerSettings

SMALL_PARAMETERS: Final = 20_000_000
"""Fewer trained parameters than this get the learning rates of small policies."""


WARMUP_STEPS: Final = 20
"""Steps over which the rate rises: AdamW's first ones move every weight by all of it."""


@dataclass(frozen=True, slots=True)
class SupervisedUpdate:
    """Result of one supervised step.

    Attributes:
        texts: number of texts.
        nats: mean negative log-likelihood of their tokens before the update, unweighted; 0 without texts.
        families: number of texts by family.
        is_finite: whether loss and gradient were finite; if not, nothing was changed.
    """

    texts: int = 0
    nats: float = 0.0
    families: Mapping[int, int] = field(default_factory=dict)
    is_finite: bool = True


class SupervisedTrainer:
    """Makes the demonstrations that a step draws likelier.

    Args:
        policy: what is trained, in place.
        parameters: the trained ones.
        settings: of the learner.
        gradients: computes them in micro-batches.

    Attributes:
        optimizer: AdamW over the parameters.
    """

    def __init__(
        self,
        policy: Policy,
        parameters: Sequence[Tensor],
        settings: LearnerSettings,
        gradients: GradientAccumulator,
    ) -> None:
        self._policy = policy
        self._settings = settings
        self._gradients = gradients
        self._rate = settings.demonstration_rate or default_demonstration_rate(parameters)
        self.optimizer = torch.optim.AdamW(parameters, lr=self._rate, weight_decay=0.0, fused=True)

    def step(
        self, texts: Sequence[DemonstrationText], rehearsed: Sequence[DemonstrationText] = ()
    ) -> SupervisedUpdate:
        """Update once on all texts, unless loss or gradient are not finite; without texts do nothing.

        The learning rate is proportional to the number of texts, and full at ``demonstrations_per_step``.
        AdamW's step does not become smaller with the loss, so that otherwise a single text in an empty buffer
        would move the policy as far as 64 do.

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
                group["lr"] = self._rate * share * min(1.0, (self._steps + 1) / WARMUP_STEPS)
            self.optimizer.step()
        self._gradients.clear()
        nats = found.figure / tokens if is_finite else 0.0
        return SupervisedUpdate(len(texts), nats, _count_by_family(texts), is_finite)

    @property
    def _steps(self) -> int:
        """Steps of the optimizer so far, over all starts."""
        return next((int(state["step"]) for state in self.optimizer.state.values()), 0)

    def _loss(self, part: list[TrainingRow], size: int) -> tuple[Tensor, float]:
        """Return a micro-batch's part of the loss, and the negative log-likelihood of its tokens."""
        logprobs = row_logprobs(
            self._policy, self._policy.model, part, temperature=1.0, bfloat16=self._settings.bfloat16
        )
        mask = token_mask(part, logprobs)
        losses = cross_entropy(logprobs, self._settings.demonstration_weighting)
        mean = grpo.mean_over_completions if self._settings.length_normalised else grpo.mean_over_tokens
        return mean(losses, mask, size), -float((logprobs.detach() * mask).sum())


def default_demonstration_rate(parameters: Sequence[Tensor]) -> float:
    """Return the learning rate of supervised steps for policies of this size.

    3e-4 is the measured value for a million parameters. For large ones 1e-5 is the usual rate of supervised
    fine-tuning; it was not measured here.
    """
    return 3e-4 if sum(parameter.numel() for parameter in parameters) < SMALL_PARAMETERS else 1e-5


def _count_by_family(texts: Sequence[DemonstrationText]) -> dict[int, int]:
    return dict(sorted(Counter(text.family for text in texts).items()))
