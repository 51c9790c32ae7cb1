"""The preferences of each sampling strategy, none of which exceeds a cap."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.swarm import EPOCH, Identity, make_manifest
from support.verification_harness import VerificationHarness

from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, AccountStanding
from sapo_verification.sampling.sampler import FULL_TRUST, SamplingPolicy, adapted_places, capped_shares
from sapo_verification.sampling.strategies import (
    MAX_ACCOUNTS,
    MIN_MEAN,
    STRATEGIES,
    AccountMeans,
)

A, B, C, D = (Account(bytes((number,)) * 20) for number in range(4))
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=4096, max_completions=8, points_per_epoch=16))
DRAWS = 400


def account_shares(strategy: str, likelihoods: AccountMeans) -> dict[Account, float]:
    standing = AccountStanding({A: 0.6, B: 0.3, C: 0.0}, (D,))
    policy = SamplingPolicy(account_cap=1.0, newcomer_cap=0.0)
    return dict(capped_shares(STRATEGIES[strategy].weigh(standing, likelihoods, AccountMeans()), policy))


def test_account_weights_of_a_worked_example() -> None:
    likelihoods = AccountMeans()
    likelihoods.learn(A, 0.5)
    assert account_shares("uniform", likelihoods) == {A: 0.5, B: 0.5, D: 0.0}
    assert account_shares("informative", likelihoods) == {A: 0.5, B: 0.5, D: 0.0}
    assert account_shares("weighted", likelihoods) == {A: 0.5, B: 0.5, D: 0.0}, "0.6 x 0.5 = 0.3 x 1"
    assert account_shares("weighted", AccountMeans()) == {
        A: pytest.approx(2 / 3),
        B: pytest.approx(1 / 3),
        D: 0.0,
    }


WEIGHTS = st.floats(0.0, 0.99, allow_subnormal=False)
"""Bounds of quotients of small counts: 0, or far from where products of floats vanish."""


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.dictionaries(st.binary(min_size=20, max_size=20).map(Account), WEIGHTS, max_size=12),
    st.lists(st.floats(0.0, 1.0), max_size=12),
    st.floats(0.0, 1.0),
)
def test_caps_apply_after_every_strategy(
    name: str, weights: dict[Account, float], liked: list[float], cap: float
) -> None:
    likelihoods = AccountMeans()
    for account, weight in zip(weights, liked, strict=False):
        likelihoods.learn(account, weight)
    policy = SamplingPolicy(account_cap=cap)
    weighed = STRATEGIES[name].weigh(AccountStanding(weights, (D,)), likelihoods, AccountMeans())
    assert {account for account, weight in weighed.weights.items() if weight > 0} == {
        account for account, weight in weights.items() if weight > 0
    }, "who has no reputation gets none, who has some keeps some"
    shares = capped_shares(weighed, policy)
    assert all(share <= cap + 1e-12 for share in shares.values())
    assert sum(shares.values()) <= 1.0 + 1e-9


def test_likelihood_is_a_bounded_mean_above_zero() -> None:
    likelihoods = AccountMeans()
    assert likelihoods.of(A) == 1.0
    for weight in (1.0, 0.0, 0.5):
        likelihoods.learn(A, weight)
    assert likelihoods.of(A) == pytest.approx(0.5)
    for _ in range(200):
        likelihoods.learn(A, 0.0)
    assert likelihoods.of(A) == MIN_MEAN
    for number in range(MAX_ACCOUNTS):
        likelihoods.learn(Account(b"\xee" + number.to_bytes(19, "big")), 0.7)
    assert likelihoods.of(A) == 1.0, "forgotten, as of an account never heard"


async def drawn_means(strategy: str) -> Counter[float]:
    """Return the mean rewards of groups drawn from one author with groups of all kinds."""
    author = Identity(1)
    policy = SamplingPolicy(external_groups=1, account_cap=1.0, strategy=strategy)
    harness = VerificationHarness((author,), manifest=MANIFEST, policy=policy)
    harness.trust(author)
    for slot in range(DRAWS):
        harness.pool.offer(harness.admit(author, slot, right=(1, 4, 7)[slot % 3], wrong=(7, 4, 1)[slot % 3]))
    rng, means = random.Random(7), Counter[float]()
    for _ in range(DRAWS // 4):
        means.update(rollout.mean_reward for rollout in await harness.sampler.draw_external(EPOCH, rng))
    return means


async def test_informative_prefers_groups_that_are_half_right() -> None:
    uniform, informative = [await drawn_means(name) for name in ("uniform", "informative")]
    assert (uniform.total(), informative.total()) == (DRAWS // 4, DRAWS // 4)
    assert uniform[0.5] == pytest.approx(DRAWS / 12, abs=3 * (DRAWS / 4 * 2 / 9) ** 0.5)
    assert informative[0.5] > 1.3 * DRAWS / 12
    assert informative[1 / 8] > 0 < informative[7 / 8], "a preference, no filter"


async def test_groups_examined_and_not_chosen_stay_in_the_pool() -> None:
    author = Identity(1)
    policy = SamplingPolicy(external_groups=1, account_cap=1.0, strategy="informative")
    harness = VerificationHarness((author,), manifest=MANIFEST, policy=policy)
    harness.trust(author)
    for slot in range(10):
        harness.pool.offer(harness.admit(author, slot))
    await harness.sampler.draw_external(EPOCH, random.Random(1))
    assert (len(harness.pool), len(harness.record.rollouts)) == (9, STRATEGIES["informative"].looks)


async def test_weighted_prefers_fresh_groups() -> None:
    author = Identity(1)

    async def fresh_share(strategy: str) -> float:
        policy = SamplingPolicy(external_groups=1, account_cap=1.0, strategy=strategy)
        harness = VerificationHarness((author,), manifest=MANIFEST, policy=policy)
        harness.trust(author)
        for slot in range(DRAWS):
            harness.pool.offer(harness.admit(author, slot, epoch=EPOCH - slot % 2))
        rng = random.Random(3)
        drawn = [
            rollout for _ in range(DRAWS // 4) for rollout in await harness.sampler.draw_external(EPOCH, rng)
        ]
        return sum(rollout.admitted.rollout.epoch == EPOCH for rollout in drawn) / len(drawn)

    uniform, weighted = [await fresh_share(name) for name in ("uniform", "weighted")]
    assert uniform == pytest.approx(0.5, abs=0.06)
    assert weighted > uniform + 0.06, "two thirds at first; fresh ones run out"


@given(st.integers(0, 64), st.lists(st.floats(0.0, 0.125), max_size=8))
def test_the_number_of_places_follows_the_trusted_share(most: int, shares: list[float]) -> None:
    by_account = {Account(bytes((number,)) * 20): share for number, share in enumerate(shares)}
    exact = most * sum(shares)
    places = {adapted_places(most, by_account, random.Random(seed)) for seed in range(40)}
    assert all(0 <= count <= most and abs(count - exact) < 1 for count in places)


async def test_external_groups_grow_with_accounts_in_good_standing_up_to_a_bound() -> None:
    people = [Identity(number) for number in range(1, 9)]
    harness = VerificationHarness(tuple(people), manifest=MANIFEST, policy=SamplingPolicy(external_groups=8))
    for identity in people:
        for slot in range(40):
            harness.pool.offer(harness.admit(identity, slot))
    harness.reputation.record_good(people[0].account, 0, EPOCH)  # one audit: still a newcomer
    counts = []
    for trusted in (0, 2, 8):
        for identity in people[:trusted]:
            for _ in range(2 * AUDITS_BEFORE_WEIGHT):
                harness.reputation.record_good(identity.account, 0, EPOCH)
        rng = random.Random(5)
        drawn = [len(await harness.sampler.draw_external(EPOCH, rng)) for _ in range(12)]
        counts.append(sum(drawn) / len(drawn))
    assert counts == [pytest.approx(0.8, abs=0.4), pytest.approx(2.8, abs=0.4), pytest.approx(8.0)]
    sampler, opened = harness.sampler, []
    for opening in (4, 2, 1, 0):
        sampler.opening = opening
        opened.append((sampler.max_external, sampler.max_demonstrations))
    assert opened == [(8, 64), (4, 32), (2, 16), (0, 0)]
    assert await harness.sampler.draw_external(EPOCH, random.Random(1)) == ()


def test_full_trust_is_enough_for_the_equal_weights() -> None:
    """Equal weights are equal also behind the bound on what weight counts."""
    weighed = STRATEGIES["uniform"].weigh(
        AccountStanding({A: 0.01, B: 0.99}, ()), AccountMeans(), AccountMeans()
    )
    assert capped_shares(weighed, replace(SamplingPolicy(), account_cap=1.0)) == {A: 0.5, B: 0.5}
    assert FULL_TRUST <= 1.0
