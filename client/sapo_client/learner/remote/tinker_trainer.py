"""Training steps whose forward passes, gradients and updates are computed by a Tinker server.

Rewards, advantages, losses, statistics and demonstrations are the same code as for a model that is trained
here. What differs: all rows are one micro-batch; the server has one AdamW, so that demonstrations share its
moments with the policy's updates, and its weights are not averaged; and it does not report the gradient's
norm, which is 0 in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Final

import torch
from torch import Tensor

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.batch import TrainingRow
from sapo_client.learner.generate import Completion, Generator, SampleRequest
from sapo_client.learner.imitation.supervised import SupervisedTrainer
from sapo_client.learner.losses.accumulate import Accumulated, FurtherRows, RowLoss, RowMeasurement
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.remote.model import RemoteModel
from sapo_client.learner.remote.tinker_server import TinkerServer
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer

LEARNING_RATE: Final = 1e-5
DEMONSTRATION_RATE: Final = 1e-4
"""Ten times the rates of whole models, as adapters need; not measured here."""


class TinkerGradients:
    """Gradients that stay on the server.

    Args:
        server: computes them.
        model: of the policy, which the losses ask for log-probabilities.
    """

    def __init__(self, server: TinkerServer, model: RemoteModel) -> None:
        self._server = server
        self._model = model

    @property
    def halvings(self) -> int:
        """How often memory ran out here: never."""
        return 0

    def compute(
        self, rows: Sequence[TrainingRow], loss: RowLoss, then: FurtherRows | None = None
    ) -> Accumulated:
        """Add the gradient over all rows to the server's; one of a loss that is not finite is zero."""
        assert then is None  # see require_possible
        found: list[tuple[float, float]] = []

        def differentiable(logprobs: list[Tensor]) -> Tensor:
            with self._model.given(logprobs):
                value, figure = loss(list(rows))
            found.append((float(value.detach()), figure))
            if isfinite(found[-1][0]):
                return value
            return sum((each * 0.0).sum() for each in logprobs)  # type: ignore[return-value]  # there are rows

        self._server.forward_backward([(row.prompt, row.completion) for row in rows], differentiable)
        value, figure = found[-1]
        return Accumulated(value, figure, norm=0.0)

    @torch.no_grad()
    def measure(self, rows: Sequence[TrainingRow], measurement: RowMeasurement) -> None:
        """Measure all rows as one micro-batch: the server divides them as it likes."""
        if rows:
            measurement(list(rows))

    def clear(self) -> None:
        """Do nothing: an update clears the server's gradients."""


class TinkerOptimizer(torch.optim.Optimizer):
    """AdamW on the server; here it only counts its steps.

    Args:
        server: updates the weights.
        weights: stands for them, because an optimizer needs a parameter.
        rate: the learning rate.
    """

    def __init__(self, server: TinkerServer, weights: torch.nn.Parameter, rate: float) -> None:
        super().__init__([weights], {"lr": rate})
        self._server = server
        self._weights = weights

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # without a closure there is no loss
        """Update the weights on the server."""
        self._server.optim_step(self.param_groups[0]["lr"])
        state = self.state[self._weights]
        state["step"] = state.get("step", torch.tensor(0.0)) + 1


class TinkerTrainer(Trainer):
    """Trainer of a policy on a Tinker server.

    Args:
        policy: whose model is a ``RemoteModel``.
        settings: of the learner.
        ranks: this process alone.
        server: trains the model.
    """

    def __init__(
        self, policy: Policy, settings: LearnerSettings, ranks: RankGroup, *, server: TinkerServer
    ) -> None:
        self._server = server
        super().__init__(policy, settings, ranks)

    def _open(self, policy: Policy, settings: LearnerSettings, ranks: RankGroup) -> None:
        assert isinstance(policy.model, RemoteModel)
        weights = torch.nn.Parameter(torch.zeros(1))
        self.parameters = [weights]
        self.optimizer = TinkerOptimizer(self._server, weights, settings.learning_rate or LEARNING_RATE)
        self._gradients = TinkerGradients(self._server, policy.model)
        rate = settings.demonstration_rate or DEMONSTRATION_RATE
        steps = settings.demonstration_steps or 1
        self.supervised = SupervisedTrainer(
            policy,
            self.parameters,
            replace(
                settings, demonstration_rate=rate, demonstration_steps=steps, demonstration_averaging=0.0
            ),
            self._gradients,
            optimizer=TinkerOptimizer(self._server, weights, rate),
        )


class TinkerGenerator(Generator):
    """Generator that samples on the server.

    Args:
        server: has the weights.
        policy: its tokenizer decodes.
    """

    def __init__(self, server: TinkerServer, policy: Policy) -> None:
        self._server = server
        self._policy = policy
        self._sampler: Any = None

    def refresh(self) -> None:
        """Open the present weights for sampling; they stay as they are while the server trains on."""
        self._sampler = self._server.sampler()

    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Sample as ``Generator.draw`` says."""
        vocabulary = len(self._policy.tokenizer)
        groups = self._server.sample(self._sampler, request, end=self._policy.end, vocabulary=vocabulary)
        return [[replace(each, text=self._policy.decode(each.tokens)) for each in group] for group in groups]


def require_possible(settings: LearnerSettings) -> None:
    """Raise if a setting is impossible on a server.

    Raises:
        SapoError: it is.
    """
    impossible = {
        "learner.passes and learner.mini_batches above 1": settings.passes * settings.mini_batches > 1,
        "learner.kl_weight": settings.kl_weight > 0,
        "learner.temperature other than 1": settings.temperature != 1.0,
        "learner.ranks other than 1": settings.ranks != 1,
        "learner.agreement": settings.agreement,
    }
    for name, is_set in impossible.items():
        if is_set:
            raise SapoError(
                f"{name} cannot be used with learner.backend = tinker",
                hint="leave the setting out: the server makes one update per step, at temperature 1",
                exit_code=ExitCode.CONFIG,
            )
