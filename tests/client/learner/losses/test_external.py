"""Losses of other nodes' text against literal ones, written row by row."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.gradients import gradient_of
from support.policies import make_policy_folder
from support.trainers import make_trainer
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.baseline import MIN_DEVIATION, MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.losses.external import EXTERNAL_LOSSES, ExternalLossName, ExternalRows

LENGTHS = (5, 3, 4, 1)


@pytest.fixture
def rows() -> ExternalRows:
    """Return four completions: two groups' right and wrong ones, the own success known for the first two."""
    random = torch.Generator().manual_seed(7)
    logprobs = -torch.rand((4, 5), generator=random, dtype=torch.float64) * 2
    mask = torch.tensor([[position < length for position in range(5)] for length in LENGTHS])
    logprobs = logprobs * mask
    old = (logprobs + 0.3 * torch.randn((4, 5), generator=random, dtype=torch.float64)) * mask
    return ExternalRows(
        logprobs=logprobs,
        old=old,
        mask=mask,
        advantages=torch.tensor([1.7, -0.6, 0.9, -1.1], dtype=torch.float64),
        rewards=torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64),
        group_means=torch.tensor([0.25, 0.25, 0.5, 0.5], dtype=torch.float64),
        group_deviations=torch.tensor([0.46, 0.46, 0.53, 0.53], dtype=torch.float64),
        own_means=torch.tensor([0.1, 0.1, math.nan, math.nan], dtype=torch.float64),
        weights=torch.tensor([0.5, 0.25, 0.6, 0.75], dtype=torch.float64),
        own_logprob=-0.95,
        progress=0.5,
    )


def literal_reinforce(rows: ExternalRows, row: int, logprobs: Tensor) -> Tensor:
    ratio = (logprobs - rows.old[row, : LENGTHS[row]]).exp().clamp(0.8, 1.28)
    return -rows.weights[row] * rows.advantages[row] * ratio


def literal_negative_weighted(rows: ExternalRows, row: int, logprobs: Tensor) -> Tensor:
    weight = rows.weights[row] if rows.advantages[row] < 0 else 1.0
    ratio = (logprobs - rows.old[row, : LENGTHS[row]]).exp().clamp(0.8, 1.28)
    return -weight * rows.advantages[row] * ratio


def literal_tapered(rows: ExternalRows, row: int, logprobs: Tensor) -> Tensor:
    own = float(rows.own_means[row])
    relative = (float(rows.rewards[row]) - own) / max(math.sqrt(own * (1 - own)), MIN_DEVIATION)
    advantage = float(rows.advantages[row]) if math.isnan(own) else relative
    return -advantage * logprobs.exp() / (logprobs.exp() + 0.1)


def literal_positive(rows: ExternalRows, row: int, logprobs: Tensor) -> Tensor:
    """Half of the horizon has passed; p - p^2 / 2 has the gradient p (1 - p) with respect to log p."""
    chance = logprobs.exp()
    return -0.275 * float(rows.rewards[row]) * (chance - chance**2 / 2)


def literal_capability(rows: ExternalRows, row: int, logprobs: Tensor) -> Tensor:
    """The square of the similarity, halved, has the gradient of the similarity times its value."""
    own, mean = float(rows.own_means[row]), float(rows.group_means[row])
    capability = 1.0 if math.isnan(own) else own / mean
    advantage = (float(rows.rewards[row]) - min(1.0, capability * mean)) / float(rows.group_deviations[row])
    similarity = (logprobs.mean() + 0.95).exp().clamp(0.8, 1.0)
    return (-(similarity**2) / 2 * advantage / capability).expand(len(logprobs))


LITERAL: dict[ExternalLossName, Callable[[ExternalRows, int, Tensor], Tensor]] = {
    "reinforce": literal_reinforce,
    "negative_weighted": literal_negative_weighted,
    "tapered": literal_tapered,
    "positive": literal_positive,
    "capability": literal_capability,
}


def test_every_loss_has_a_reference_definition() -> None:
    assert LITERAL.keys() == EXTERNAL_LOSSES.keys()


@pytest.mark.parametrize("name", LITERAL)
def test_gradients_are_those_of_the_literal_loss(rows: ExternalRows, name: ExternalLossName) -> None:
    values = rows.logprobs.clone().requires_grad_()
    losses = EXTERNAL_LOSSES[name](replace(rows, logprobs=values))
    torch.autograd.backward(grpo.mean_over_tokens(losses, rows.mask, 13))
    literal = rows.logprobs.clone().requires_grad_()
    parts = [LITERAL[name](rows, row, literal[row, :length]).sum() for row, length in enumerate(LENGTHS)]
    torch.autograd.backward(torch.stack(parts).sum() / 13)
    assert gradient_of(literal).abs().max() > 0
    assert torch.allclose(gradient_of(values), gradient_of(literal), atol=1e-12)


def test_the_loss_positive_ignores_wrong_answers(rows: ExternalRows) -> None:
    values = rows.logprobs.clone().requires_grad_()
    torch.autograd.backward(EXTERNAL_LOSSES["positive"](replace(rows, logprobs=values)).sum())
    assert [bool(row.any()) for row in gradient_of(values)] == [True, False, True, False]


@pytest.mark.parametrize(("progress", "mu"), [(0.0, 0.5), (0.5, 0.275), (1.0, 0.05), (7.0, 0.05)])
def test_the_weight_of_positive_falls_to_its_end(rows: ExternalRows, progress: float, mu: float) -> None:
    half = torch.full_like(rows.logprobs, math.log(0.5))
    losses = EXTERNAL_LOSSES["positive"](replace(rows, logprobs=half, progress=progress))
    assert float(losses[0, 0]) == pytest.approx(mu * 0.25 * math.log(2))


@pytest.mark.parametrize(("own", "trained"), [(-0.95, True), (0.0, False), (-2.0, False), (math.nan, False)])
def test_the_loss_capability_ignores_text_outside_the_clip_range(
    rows: ExternalRows, own: float, trained: bool
) -> None:
    """Outside of the clip, and before there are own completions."""
    values = torch.full_like(rows.logprobs, -1.0).requires_grad_()
    losses = EXTERNAL_LOSSES["capability"](replace(rows, logprobs=values, own_logprob=own))
    torch.autograd.backward(losses.sum())
    assert bool(gradient_of(values).any()) is trained


CAPABILITIES = [
    # own mean reward, group's mean, its deviation, reward; expected: c, and A of the formula
    (0.1, 0.25, 0.46, 1.0, 0.4, (1.0 - 0.1) / 0.46),
    (0.1, 0.25, 0.46, 0.0, 0.4, (0.0 - 0.1) / 0.46),
    (0.75, 0.25, 0.46, 1.0, 3.0, (1.0 - 0.75) / 0.46),
    (0.9, 0.05, 0.35, 1.0, 10.0, (1.0 - 0.5) / 0.35),  # eighteen times as capable: bounded
    (0.01, 0.5, 0.53, 1.0, 0.1, (1.0 - 0.05) / 0.53),  # a fiftieth: bounded
    (math.nan, 0.5, 0.53, 1.0, 1.0, (1.0 - 0.5) / 0.53),  # not known
    (0.1, 1.0, 0.0, 1.0, 0.1, 0.0),  # a group without an advantage
]


def test_capability_divides_the_advantage_over_the_own_success_by_the_relative_capability() -> None:
    """Right answers within the clip; of wrong ones A / c does not depend on c."""
    own, means, deviations, rewards, relative, advantages = zip(*CAPABILITIES, strict=True)
    mask = torch.tensor([[True, place != 5, place not in (3, 5)] for place in range(len(CAPABILITIES))])
    values = torch.tensor([[-1.2, -0.9, -1.2]] * len(CAPABILITIES), dtype=torch.float64).requires_grad_()
    nothing = torch.zeros(len(CAPABILITIES), dtype=torch.float64)

    def column(of: tuple[float, ...]) -> Tensor:
        return torch.tensor(of, dtype=torch.float64)

    losses = EXTERNAL_LOSSES["capability"](
        ExternalRows(
            logprobs=values,
            old=torch.zeros_like(values),
            mask=mask,
            advantages=nothing,
            rewards=column(rewards),
            group_means=column(means),
            group_deviations=column(deviations),
            own_means=column(own),
            weights=nothing,
            own_logprob=-1.0,
            progress=0.0,
        )
    )
    torch.autograd.backward(losses[:, 0].sum())
    by_length = {1: math.exp(-1.2 + 1.0), 2: math.exp(-1.05 + 1.0), 3: math.exp(-1.1 + 1.0)}
    lengths = mask.sum(1).tolist()
    similar = [by_length[length] for length in lengths]
    found = [-(s**2) * a / c for s, a, c in zip(similar, advantages, relative, strict=True)]
    assert losses[:, 0].tolist() == pytest.approx(found, rel=1e-12, abs=1e-12)
    slopes = [[value / length] * length for value, length in zip(found, lengths, strict=True)]
    expected = torch.zeros_like(values)
    for place, slope in enumerate(slopes):
        expected[place, : len(slope)] = torch.tensor(slope, dtype=torch.float64)
    assert torch.allclose(gradient_of(values), expected, rtol=0.0, atol=1e-12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_policy_folder(tmp_path / "model")


def group(external: bool) -> TrainingGroup:
    completions = tuple((40 + index, 41, 42) for index in range(4))
    return TrainingGroup((30, 31), completions, (1.0, 0.0, 0.0, 1.0), external, None, family=2)


@pytest.mark.parametrize("name", EXTERNAL_LOSSES)
def test_own_rows_are_trained_alike_whatever_the_loss_of_others(folder: Path, name: ExternalLossName) -> None:
    usual, other = make_trainer(folder), make_trainer(folder, external_loss=name)
    for trainer in (usual, other):
        trainer.step([group(external=False)])
    pairs = zip(usual.parameters, other.parameters, strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def loss_of_others(folder: Path, name: ExternalLossName) -> float:
    """Return the gradient norm of a step on another node's group, the own success in its family known."""
    trainer = make_trainer(folder, external_loss=name)
    trainer.baselines = Baselines({2: FamilyBaseline(0.2, MIN_SAMPLES)})
    trainer.own_logprob = trainer.own_logprob.after([-4.5])
    return trainer.step([group(external=True)]).gradient_norm


def test_the_setting_chooses_the_loss_of_others(folder: Path) -> None:
    """Without statistics the likelihood weight is 1, so the first two losses are the same one."""
    norms = {name: loss_of_others(folder, name) for name in EXTERNAL_LOSSES}
    assert norms["reinforce"] == norms["negative_weighted"] > 0
    assert len(set(norms.values())) == len(EXTERNAL_LOSSES) - 1
