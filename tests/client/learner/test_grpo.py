"""The loss against a literal one, written with loops and floats."""

import math
import statistics
from typing import NamedTuple

import pytest
import torch
from support.gradients import gradient_of
from torch import Tensor

from sapo_client.learner import grpo
from sapo_client.learner.losses.forms import token_outside


def literal_token_loss(logprob: float, old: float, advantage: float) -> float:
    ratio = math.exp(logprob - old)
    clipped = min(max(ratio, 0.8), 1.28)
    return -min(min(ratio, grpo.RATIO_CAP) * advantage, clipped * advantage)


class Rows(NamedTuple):
    """Log-probabilities of five completions of at most seven tokens, (B, T).

    Attributes:
        logprobs: under the policy.
        old: under the policy that sampled.
        advantages: of the completions, (B,).
        mask: which tokens exist.
        lengths: tokens of each completion.
    """

    logprobs: Tensor
    old: Tensor
    advantages: Tensor
    mask: Tensor
    lengths: list[int]


@pytest.fixture
def rows() -> Rows:
    random = torch.Generator().manual_seed(4)
    logprobs = -torch.rand((5, 7), generator=random, dtype=torch.float64) * 4
    old = logprobs + torch.randn((5, 7), generator=random, dtype=torch.float64) * 0.8
    old[0] = logprobs[0]  # on-policy
    old[1, 0] = logprobs[1, 0] - 3.0  # a ratio of 20 under a negative advantage
    advantages = torch.tensor([1.5, -0.7, 0.0, 0.4, -1.2], dtype=torch.float64)
    lengths = [7, 3, 5, 1, 6]
    mask = torch.tensor([[position < length for position in range(7)] for length in lengths])
    return Rows(logprobs, old, advantages, mask, lengths)


def test_advantages() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0]
    spread = statistics.stdev(rewards) + 1e-6
    expected = [(reward - 0.6) / spread for reward in rewards]
    found = grpo.group_advantages(torch.tensor(rewards, dtype=torch.float64)).tolist()
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 4, [1.0], [0.1] * 8])
def test_equal_rewards_have_no_advantage(rewards: list[float]) -> None:
    assert grpo.group_advantages(torch.tensor(rewards)).tolist() == [0.0] * len(rewards)


def test_token_losses_equal_the_literal_ones(rows: Rows) -> None:
    logprobs, old, advantages, _, _ = rows
    losses = grpo.token_losses(logprobs, old, advantages)
    for row in range(5):
        for position in range(7):
            expected = literal_token_loss(
                float(logprobs[row, position]), float(old[row, position]), float(advantages[row])
            )
            assert float(losses[row, position]) == pytest.approx(expected, abs=1e-12)


def test_the_cap_bounds_the_negative_side(rows: Rows) -> None:
    logprobs, old, advantages, _, _ = rows
    assert float(grpo.token_losses(logprobs, old, advantages)[1, 0]) == pytest.approx(0.7 * grpo.RATIO_CAP)


def test_means_equal_the_literal_ones(rows: Rows) -> None:
    logprobs, old, advantages, mask, lengths = rows
    losses = grpo.token_losses(logprobs, old, advantages)
    sums = [
        sum(float(losses[row, position]) for position in range(length)) for row, length in enumerate(lengths)
    ]
    by_token = sum(sums) / 40
    by_completion = sum(total / length for total, length in zip(sums, lengths, strict=True)) / 8
    assert float(grpo.mean_over_tokens(losses, mask, 40)) == pytest.approx(by_token, abs=1e-12)
    assert float(grpo.mean_over_completions(losses, mask, 8)) == pytest.approx(by_completion, abs=1e-12)


def test_clipped_tokens_are_counted(rows: Rows) -> None:
    logprobs, old, advantages, mask, lengths = rows
    ratios = torch.exp(logprobs - old)
    expected = sum(
        not 0.8 <= float(ratios[row, position]) <= 1.28
        for row, length in enumerate(lengths)
        for position in range(length)
    )
    assert int(token_outside(logprobs, old, advantages, mask).sum()) == expected > 0


def test_gradients(rows: Rows) -> None:
    """Finite differences, away from the kinks of clip and minimum."""
    logprobs, old, advantages, mask, _ = rows
    ratio = torch.exp(logprobs - old)
    for kink in (0.8, 1.28, grpo.RATIO_CAP):
        assert (ratio - kink).abs().min() > 1e-4

    def loss(values: Tensor) -> Tensor:
        return grpo.mean_over_tokens(grpo.token_losses(values, old, advantages), mask, 22)

    assert torch.autograd.gradcheck(loss, (logprobs.requires_grad_(),), eps=1e-7, atol=1e-6)


def test_on_policy_gradient_is_plain_policy_gradient(rows: Rows) -> None:
    logprobs, _, advantages, mask, _ = rows
    values = logprobs.clone().requires_grad_()
    torch.autograd.backward(grpo.mean_over_tokens(grpo.token_losses(values, logprobs, advantages), mask, 22))
    expected = -advantages[:, None] * mask / 22
    assert torch.allclose(gradient_of(values), expected.to(torch.float64))


def test_external_rows_are_clipped_on_both_sides(rows: Rows) -> None:
    logprobs, old, advantages, _, _ = rows
    external = torch.tensor([False, True, True, True, False])
    values = logprobs.clone().requires_grad_()
    losses = grpo.token_losses(values, old, advantages, external)
    ratio = torch.exp(logprobs - old)
    plain = grpo.token_losses(logprobs, old, advantages)
    assert torch.equal(losses[~external], plain[~external])
    clipped = -ratio.clamp(0.8, 1.28) * advantages[:, None]
    assert torch.equal(losses[external], clipped[external])
    torch.autograd.backward(losses.sum())
    outside = external[:, None] & ((ratio < 0.8) | (ratio > 1.28))
    assert outside.sum() > 5
    assert (gradient_of(values)[outside] == 0).all(), "outside the range on either side there is no gradient"
    assert float(plain[1, 0]) == pytest.approx(0.7 * grpo.RATIO_CAP)
    assert float(losses[1, 0].detach()) == pytest.approx(0.7 * 1.28)


def test_kl_divergence_is_zero_at_the_reference_and_positive_elsewhere(rows: Rows) -> None:
    logprobs, reference, _, _, _ = rows
    divergence = grpo.kl_divergence(logprobs, reference)
    assert (divergence[0] == 0).all(), "this row equals the reference"
    assert (divergence[1:] > 0).all()
    expected = math.exp(float(reference[2, 3] - logprobs[2, 3])) - float(reference[2, 3] - logprobs[2, 3]) - 1
    assert float(divergence[2, 3]) == pytest.approx(expected, abs=1e-12)
