"""The likelihood weight: 1 for probable text, 0 for text far from the own policy, never negative."""

import math
import random
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_verification.screens.likelihood import (
    FULL_WEIGHT_DEVIATIONS,
    MEMORY,
    MIN_DEVIATION,
    MIN_SAMPLES,
    NO_WEIGHT_DEVIATIONS,
    LogprobStatistics,
    hardest_tokens,
)

logprobs = st.lists(st.floats(-50.0, 0.0), min_size=1, max_size=60)


def trained(values: list[list[float]]) -> LogprobStatistics:
    statistics = LogprobStatistics()
    for value in values:
        statistics = statistics.after(value)
    return statistics


def own_samples(count: int, entropy: float = 1.0, seed: int = 0) -> list[list[float]]:
    """Return log-probabilities of tokens as a policy with this entropy samples them."""
    rng = random.Random(seed)
    return [[-rng.expovariate(1.0 / entropy) for _ in range(rng.randint(3, 40))] for _ in range(count)]


def test_least_likely_tokens_of_worked_examples() -> None:
    assert hardest_tokens([]) == 0.0
    assert hardest_tokens([-1.0, -3.0]) == -2.0
    assert hardest_tokens([-9.0, *[-1.0] * 9]) == -3.0  # four of ten
    assert hardest_tokens([-5.0] * 10 + [0.0] * 90) == -5.0  # ten of a hundred


def test_without_statistics_every_text_has_full_weight() -> None:
    impossible = [-40.0] * 10
    assert LogprobStatistics().weight(impossible) == 1.0
    assert trained(own_samples(MIN_SAMPLES - 1)).weight(impossible) == 1.0
    assert trained(own_samples(MIN_SAMPLES)).weight(impossible) == 0.0


@pytest.mark.parametrize("entropy", [0.01, 0.3, 1.0, 2.5])
def test_own_text_has_full_weight_and_random_text_none(entropy: float) -> None:
    statistics = trained(own_samples(400, entropy))
    fresh = own_samples(400, entropy, seed=1)
    assert fmean(map(statistics.weight, fresh)) > 0.99
    rng = random.Random(2)
    gibberish = [[rng.gauss(-25.0, 3.0) for _ in range(20)] for _ in range(50)]
    assert max(map(statistics.weight, gibberish)) == 0.0


def test_a_confident_policy_still_uses_text_of_others() -> None:
    """The policy's own samples hardly vary; a rare right answer is 3.5 nats away."""
    sure = trained([[-0.01] * 5] * 200)
    assert sure.weight([-3.5, -0.1, -0.1]) == 1.0
    assert sure.weight([-30.0] * 3) == 0.0


def test_a_planted_sentence_in_a_long_text_is_detected() -> None:
    statistics = trained([[-1.0] * 100] * 200)
    assert statistics.weight([-1.0] * 100) == 1.0
    assert statistics.weight([*[-1.0] * 99, -30.0]) == 1.0, "one odd token is chance"
    assert statistics.weight([*[-1.0] * 90, *[-14.0] * 10]) == 0.0


def test_between_the_bounds_the_weight_falls_linearly() -> None:
    statistics = trained([[-1.0]] * 100)
    far = [FULL_WEIGHT_DEVIATIONS, (FULL_WEIGHT_DEVIATIONS + NO_WEIGHT_DEVIATIONS) / 2, NO_WEIGHT_DEVIATIONS]
    weights = [statistics.weight([-1.0 - MIN_DEVIATION * each]) for each in far]
    assert weights == pytest.approx([1.0, 0.5, 0.0])


@given(st.lists(logprobs, min_size=1, max_size=MEMORY))
def test_the_statistics_are_mean_and_variance_of_what_it_remembers(values: list[list[float]]) -> None:
    statistics = trained(values)
    hardest = [hardest_tokens(value) for value in values]
    assert statistics.samples == len(values)
    assert statistics.mean == pytest.approx(fmean(hardest), abs=1e-9)
    assert statistics.variance == pytest.approx(pvariance(hardest), abs=1e-6)


def test_the_statistics_follow_the_policy() -> None:
    statistics = trained([*[[-9.0]] * MEMORY, *[[-1.0]] * (8 * MEMORY)])
    assert statistics.mean == pytest.approx(-1.0, abs=0.01)


@given(logprobs, logprobs)
def test_weights_are_shares_and_likelier_text_weighs_no_less(one: list[float], other: list[float]) -> None:
    statistics = trained(own_samples(MIN_SAMPLES))
    low, high = sorted((one, other), key=hardest_tokens)
    assert 0.0 <= statistics.weight(low) <= statistics.weight(high) <= 1.0


def test_nan_and_infinity_do_not_change_the_statistics() -> None:
    statistics = trained(own_samples(MIN_SAMPLES))
    for broken in ([math.nan], [-math.inf], [-1.0, math.nan, -2.0]):
        assert statistics.after(broken) == statistics
        assert statistics.weight(broken) == 0.0
    assert statistics.after([]) == statistics
    assert statistics.weight([]) == 1.0
