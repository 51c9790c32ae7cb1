"""The clips of GSPO and CISPO on all of their sides, for both signs, against literal formulas."""

import math

import pytest
import torch
from support.gradients import gradient_of

from sapo_client.learner.losses.forms import LOSS_FORMS

LENGTH = 4
LOG_RATIOS = (-1e-3, -4e-4, -2e-4, 0.0, 3.5e-4, 5e-4, 1e-3)
"""Means over a completion's tokens: two below, two inside, one inside on the wider side, two above."""


def literal(log_ratio: float, advantage: float) -> tuple[float, float]:
    """Return a completion's loss, and its derivative by the mean of its tokens' log-probabilities."""
    ratio = math.exp(log_ratio)
    clipped = min(max(ratio, 1.0 - 3e-4), 1.0 + 4e-4)
    is_free = ratio * advantage <= clipped * advantage
    return -min(ratio * advantage, clipped * advantage), -ratio * advantage if is_free else 0.0


@pytest.mark.parametrize("advantage", [1.5, -0.7])
def test_the_sequence_ratio_is_clipped_on_the_side_that_gains(advantage: float) -> None:
    form, count = LOSS_FORMS["gspo"], len(LOG_RATIOS)
    steps = torch.tensor([0.3, -0.1, 0.2, -0.4], dtype=torch.float64)  # of the tokens around their mean
    old = torch.linspace(-3.0, -1.0, count * LENGTH, dtype=torch.float64).reshape(count, LENGTH)
    logprobs = (old + torch.tensor(LOG_RATIOS, dtype=torch.float64)[:, None] + steps).requires_grad_()
    advantages = torch.full((count,), advantage, dtype=torch.float64)
    mask = torch.ones((count, LENGTH), dtype=torch.bool)
    losses = form.token_losses(logprobs, old, advantages, mask)
    torch.autograd.backward(losses.sum() / LENGTH)
    expected = [literal(each, advantage) for each in LOG_RATIOS]
    assert losses[:, 0].tolist() == pytest.approx([loss for loss, _ in expected], abs=1e-12)
    slopes = torch.tensor([[slope / LENGTH] * LENGTH for _, slope in expected], dtype=torch.float64)
    assert torch.allclose(gradient_of(logprobs), slopes, atol=1e-12, rtol=0.0)


def test_completions_outside_the_sequence_range_are_counted_with_all_their_real_tokens() -> None:
    form, count = LOSS_FORMS["gspo"], len(LOG_RATIOS)
    old = torch.full((count, LENGTH), -2.0, dtype=torch.float64)
    logprobs = old + torch.tensor(LOG_RATIOS, dtype=torch.float64)[:, None]
    mask = torch.tensor([[place < 3 for place in range(LENGTH)]] * count)
    found = form.outside(logprobs, old, torch.ones(count, dtype=torch.float64), mask)
    outside = [True, True, False, False, False, True, True]
    assert found.tolist() == [[each] * 3 + [False] for each in outside]


def test_cispo_bounds_the_weight_and_leaves_every_token_its_gradient() -> None:
    form, ratios = LOSS_FORMS["cispo"], [0.1, 1.0, 4.9, 5.1, 40.0]
    logprobs = torch.tensor([[-0.5, -1.0, -1.5, -2.0, -2.5, -3.0]] * 2, dtype=torch.float64)
    old = logprobs - torch.tensor([math.log(ratio) for ratio in (*ratios, 99.0)], dtype=torch.float64)
    mask = torch.tensor([[True] * 5 + [False]] * 2)
    advantages = torch.tensor([1.5, -0.7], dtype=torch.float64)
    losses = form.token_losses(logprobs.requires_grad_(), old, advantages, mask)
    torch.autograd.backward((losses * mask).sum())
    slopes = [[-min(ratio, 5.0) * advantage for ratio in ratios] + [0.0] for advantage in (1.5, -0.7)]
    assert torch.allclose(gradient_of(logprobs), torch.tensor(slopes, dtype=torch.float64), atol=1e-12)
    given = logprobs.tolist()
    expected = [
        [slope * each for slope, each in zip(*rows, strict=True)] for rows in zip(slopes, given, strict=True)
    ]
    assert torch.allclose(losses * mask, torch.tensor(expected, dtype=torch.float64), atol=1e-12)
    outside = form.outside(logprobs.detach(), old, advantages, mask)
    assert outside.tolist() == [[False, False, False, True, True, False]] * 2
