"""The economy of a swarm: known outcomes on a fixed seed, and bounds on what strategies gain."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.lab.economy import (
    COMPETENCE,
    HONEST,
    STRATEGIES,
    EarningStrategy,
    EconomyRow,
    EconomyWorld,
    Lie,
    Prices,
    Rules,
    StrategyOutcome,
    compare,
    paid_share,
    play,
)

RULES, PRICES = Rules(), Prices()
SMALL = EconomyWorld(honest=3, epochs=3, rollouts=40)
CERTAIN = EconomyWorld(honest=2, epochs=5, rollouts=10, payable_share=1.0)


def row(
    strategy: EarningStrategy, world: EconomyWorld = SMALL, rules: Rules = RULES, seed: int = 0
) -> EconomyRow:
    return compare([strategy], rules, PRICES, world, seed)[0]


@cache
def shipped_rows() -> list[EconomyRow]:
    """Return every strategy's row under the shipped rules, which several tests read."""
    return compare(STRATEGIES, RULES, PRICES, EconomyWorld(), seed=0)


def named(beginning: str) -> EarningStrategy:
    (found,) = (strategy for strategy in STRATEGIES if strategy.name.startswith(beginning))
    return found


def test_honest_work_is_paid_per_rollout() -> None:
    free = replace(RULES, register_gas=0, claim_gas=0)
    expected = StrategyOutcome(HONEST, points=50, cost=50.5, profit=50 * 4.0 - 50.5, others=100, posted=5)
    assert play(HONEST, free, PRICES, CERTAIN, 0) == expected


def test_gas_is_paid_once_for_each_account_and_for_each_claim() -> None:
    idle = EarningStrategy("idle", accounts=2, machines=0.0)
    cost = 2 * 120_000 / 1e6 * 100
    assert play(idle, RULES, PRICES, CERTAIN, 0) == StrategyOutcome(idle, 0, cost, -cost, 100, 5)
    split = play(replace(HONEST, accounts=2), RULES, PRICES, CERTAIN, 0)
    one = play(HONEST, RULES, PRICES, CERTAIN, 0)
    assert split.points == one.points
    assert split.cost - one.cost == pytest.approx((120_000 + 100_000) * 100 / 1e6)


def test_the_same_seed_makes_the_same_history() -> None:
    first, again = (compare(STRATEGIES, RULES, PRICES, SMALL, 5) for _ in range(2))
    assert first == again
    assert first != compare(STRATEGIES, RULES, PRICES, SMALL, 6)


def test_pay_is_limited_by_slots_cap_and_budget() -> None:
    few_slots = replace(RULES, slots_per_epoch=4)
    assert play(HONEST, few_slots, PRICES, CERTAIN, 0).points == 4 * 5
    capped = replace(RULES, points_per_epoch=7)
    assert play(HONEST, capped, PRICES, CERTAIN, 0).points == 7 * 5
    enough, half, none = (replace(RULES, epoch_budget_points=budget) for budget in (30, 15, 0))
    outcomes = [play(HONEST, rules, PRICES, CERTAIN, 0) for rules in (enough, half, none)]
    assert [(o.points, o.others, o.posted) for o in outcomes] == [(50, 100, 5), (25, 50, 5), (0, 0, 0)]


@given(seed=st.integers(0, 999), accounts=st.integers(2, 12))
def test_splitting_below_the_cap_never_gains(seed: int, accounts: int) -> None:
    split = row(EarningStrategy("split", accounts=accounts), seed=seed)
    assert split.outcome.points == row(HONEST, seed=seed).outcome.points
    assert split.against_honest < 0


@given(seed=st.integers(0, 999), flood=st.integers(1, 50))
def test_a_flood_costs_and_earns_nothing(seed: int, flood: int) -> None:
    flooded = row(EarningStrategy("flood", flood=flood), seed=seed)
    assert flooded.outcome.points == row(HONEST, seed=seed).outcome.points
    assert flooded.against_honest < 0


@given(seed=st.integers(0, 999), delivered=st.floats(0, 0.99))
def test_withholding_never_gains(seed: int, delivered: float) -> None:
    withheld = row(EarningStrategy("withhold", delivered=delivered), seed=seed)
    assert withheld.outcome.points <= row(HONEST, seed=seed).outcome.points
    assert withheld.others_lose == 0


@given(seed=st.integers(0, 99), liars=st.integers(0, 4), more=st.integers(1, 3), lie=st.sampled_from(Lie))
def test_a_third_of_the_auditors_changes_no_points(seed: int, liars: int, more: int, lie: Lie) -> None:
    lying = row(EarningStrategy("lie", liars=liars, lie=lie, auditors=3 * liars + more), seed=seed)
    assert (lying.against_honest, lying.others_lose) == (0, 0)


@given(seed=st.integers(0, 99), stood=st.integers(0, 3))
def test_more_than_a_third_of_the_auditors_can_remove_and_add_points(seed: int, stood: int) -> None:
    liars, auditors = stood + 1, 3 * stood + 1
    deny = row(EarningStrategy("deny", liars=liars, lie=Lie.DENY, auditors=auditors), seed=seed)
    assert (deny.against_honest, deny.others_lose) == (0, 1)
    inflate = row(EarningStrategy("inflate", liars=liars, auditors=auditors), seed=seed)
    assert inflate.outcome.points == RULES.points_per_epoch * SMALL.epochs


def test_the_strategies_that_beat_honest_work_are_listed() -> None:
    """This list, and docs/incentives.md, hold all strategies that the rules do not stop."""
    rows = shipped_rows()
    better = {each.outcome.strategy for each in rows if each.against_honest > 0} - {*COMPETENCE}
    harmful = {each.outcome.strategy for each in rows if each.others_lose > 0}
    gated = {
        strategy
        for strategy in STRATEGIES
        if strategy.name.startswith(("bond gate: script", "eas gate: script"))
    }
    open_ = map(named, ("script: ", "script, 16", "script, 64"))
    assert better == {named("2 of 4 auditors inflate"), *open_, *gated}
    assert harmful == {
        named("2 of 4 auditors deny"),
        named("script, 64"),
        named("bond gate: script, 64 accounts, 64"),
        named("eas gate: script, 64 accounts, 64"),
    }


def test_accounts_on_one_bond_earn_what_one_account_does() -> None:
    """The attacker first: without a gate the points of a script grow with its accounts."""
    rows = shipped_rows()
    points = {each.outcome.strategy.name: each.outcome.points for each in rows}
    one = points["bond gate: script, 1 account, 1 unit"]
    assert one == RULES.points_per_epoch * EconomyWorld().epochs
    assert points["script, 64 accounts: over the budget"] > 60 * one
    shared = [points[f"bond gate: script, {accounts} accounts, 1 unit"] for accounts in (16, 64, 100)]
    assert max(shared) <= one
    assert points["bond gate: script, 64 accounts, 64 units"] > 60 * one  # which takes 64 bonds


def test_accounts_on_one_attestation_earn_what_one_account_does() -> None:
    rows = shipped_rows()
    points = {each.outcome.strategy.name: each.outcome.points for each in rows}
    one = points["eas gate: script, 1 account, 1 attested"]
    assert one == RULES.points_per_epoch * EconomyWorld().epochs
    assert points["eas gate: script, 64 accounts, 1 attested"] == one
    assert points["eas gate: script, 64 accounts, 64 attested"] > 60 * one  # which takes 64 attestations
    assert points["eas gate: one machine, 8 accounts, 1 attested"] < points["eas gate: honest, attested"]


@given(seed=st.integers(0, 99), accounts=st.integers(1, 40), machines=st.integers(1, 40))
def test_splitting_an_attestation_earns_at_most_as_much(seed: int, accounts: int, machines: int) -> None:
    whole = EarningStrategy("whole", machines=machines * accounts, payable_share=1.0, attested=1)
    split = replace(whole, name="split", accounts=accounts)
    assert row(split, seed=seed).outcome.points <= row(whole, seed=seed).outcome.points


@given(seed=st.integers(0, 99), accounts=st.integers(1, 40), machines=st.integers(1, 40))
def test_splitting_a_bond_earns_at_most_as_much(seed: int, accounts: int, machines: int) -> None:
    whole = EarningStrategy("whole", machines=machines * accounts, payable_share=1.0, units=1)
    split = replace(whole, name="split", accounts=accounts)
    assert row(split, seed=seed).outcome.points <= row(whole, seed=seed).outcome.points


SUCCESS = [number / 20 for number in range(1, 20)]
"""5 % to 95 % of right answers."""


def points_by_success(**rule: Any) -> list[int]:
    """Return an author's points at each of the shares above, in the same swarm."""
    strategies = [EarningStrategy("", payable_share=paid_share(success, **rule)) for success in SUCCESS]
    return [play(strategy, RULES, PRICES, SMALL, 0).points for strategy in strategies]


@pytest.mark.parametrize("value", [4, 3])
def test_a_better_policy_is_never_paid_less(value: int) -> None:
    points = points_by_success(ladders=True, value=value)
    assert points == sorted(points)
    assert points[-1] > points[0]


def test_without_ladders_a_better_policy_is_finally_paid_less() -> None:
    points = points_by_success(ladders=False)
    assert points[-1] < points[9] / 2


def test_a_right_answer_has_more_value_at_a_hard_level() -> None:
    hard, mastered = (points_by_success(ladders=True, value=value) for value in (4, 3))
    assert all(more > less for more, less in zip(hard, mastered, strict=True))
    assert hard[9] > max(mastered)
