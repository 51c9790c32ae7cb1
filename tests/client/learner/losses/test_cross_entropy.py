"""Weights of tokens against the functions whose gradients define them."""

from collections.abc import Callable

import pytest
import torch
from support.gradients import gradient_of
from torch import Tensor

from sapo_client.learner.losses.cross_entropy import TOKEN_WEIGHTS, TokenWeighting, cross_entropy

DEFINITIONS: dict[TokenWeighting, Callable[[Tensor], Tensor]] = {
    "plain": lambda p: -p.log(),
    "luffy": lambda p: -4.0 * p / (p + 0.1),
    "chord": lambda p: -(p - p**2 / 2),
}
"""Functions of the probability with the gradients that the weighted losses must have."""


@pytest.fixture
def probabilities() -> Tensor:
    return torch.tensor([[1.0, 0.9, 0.5], [0.1, 1e-3, 1e-8]], dtype=torch.float64)


def test_every_weighting_has_a_reference_definition() -> None:
    assert DEFINITIONS.keys() == TOKEN_WEIGHTS.keys()


@pytest.mark.parametrize("weighting", DEFINITIONS)
def test_gradients_are_those_of_the_definition(probabilities: Tensor, weighting: TokenWeighting) -> None:
    values, literal = (probabilities.log().requires_grad_() for _ in range(2))
    torch.autograd.backward(cross_entropy(values, weighting).sum())
    torch.autograd.backward(DEFINITIONS[weighting](literal.exp()).sum())
    assert torch.allclose(gradient_of(values), gradient_of(literal), atol=1e-12)


def test_luffys_largest_weight_is_one_at_a_tenth() -> None:
    grid = torch.linspace(0.0, 1.0, 10_001, dtype=torch.float64)
    weights = TOKEN_WEIGHTS["luffy"](grid)
    assert (float(weights.max()), float(grid[weights.argmax()])) == pytest.approx((1.0, 0.1))
    ends = TOKEN_WEIGHTS["luffy"](torch.tensor([1.0, 0.01]))
    assert ends.tolist() == pytest.approx([0.4 / 1.21, 0.004 / 0.0121])


@pytest.mark.parametrize("weighting", DEFINITIONS)
def test_the_loss_is_never_negative(probabilities: Tensor, weighting: TokenWeighting) -> None:
    assert (cross_entropy(probabilities.log(), weighting) >= 0).all()
