"""Which accounts' steps mislead: far below the median account of a family, and never before there is one."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.identifiers import Account
from sapo_verification.sampling import step_values
from sapo_verification.sampling.step_values import (
    LEAST_ACCOUNTS,
    LEAST_DEPENDENCE,
    LEAST_STANDARD,
    LEAST_TEXTS,
    MISLEADING_BELOW,
    SPLITS,
    TEXTS_IN_MEAN,
    Mean,
    StepValue,
    StepValues,
)

HONEST, NONSENSE, FAMILY = 0.9, 0.1, 3


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


def values_of(texts: Mapping[int, Sequence[float]], family: int = FAMILY) -> StepValues:
    values = StepValues()
    for number, found in texts.items():
        for value in found:
            learn(values, number, value, family)
    return values


def learn(values: StepValues, number: int, likelihood: float, family: int = FAMILY) -> None:
    values.learn([(account(number), family, StepValue(likelihood))])


def test_who_is_far_below_the_median_misleads_in_that_family_only() -> None:
    values = values_of({1: [HONEST] * 6, 2: [0.8] * 6, 3: [NONSENSE] * 6, 4: [0.6] * 6})
    learn(values, 3, NONSENSE, FAMILY + 1)
    assert values.misleading() == {(account(3), FAMILY)}


@pytest.mark.parametrize(
    "texts",
    [
        {1: [HONEST] * 6, 2: [HONEST] * 6, 3: [NONSENSE] * (LEAST_TEXTS - 1)},
        {1: [HONEST] * 6, 3: [NONSENSE] * 6},
        {1: [HONEST] * 6, 2: [HONEST] * (LEAST_TEXTS - 1), 3: [NONSENSE] * 6},
        {1: [LEAST_STANDARD - 0.01] * 6, 2: [LEAST_STANDARD - 0.01] * 6, 3: [0.0] * 6},
        {1: [HONEST] * 6, 2: [HONEST] * 6, 3: [MISLEADING_BELOW * HONEST] * 6},
    ],
    ids=["few texts", "two accounts", "two judged accounts", "the policy knows nothing yet", "just enough"],
)
def test_nobody_misleads_without_a_standard_or_by_little(texts: Mapping[int, Sequence[float]]) -> None:
    assert values_of(texts).misleading() == frozenset()


def test_an_account_that_changes_is_judged_by_its_last_texts() -> None:
    values = values_of({1: [HONEST] * 6, 2: [HONEST] * 6, 3: [NONSENSE] * 100})
    assert values.misleading() == {(account(3), FAMILY)}
    for _ in range(2 * TEXTS_IN_MEAN):
        learn(values, 3, HONEST)
    assert values.misleading() == frozenset()


@given(
    st.lists(st.floats(0.6, 1.0), min_size=LEAST_ACCOUNTS, max_size=9),
    st.lists(st.floats(0.0, 1.0), max_size=8),
)
def test_fewer_than_half_of_the_accounts_cannot_make_an_honest_one_misleading(
    honest: list[float], hostile: list[float]
) -> None:
    """The median of a minority and of values from 0.6 to 1 is at most 1."""
    hostile = hostile[: len(honest) - 1]
    texts = {number: [value] * LEAST_TEXTS for number, value in enumerate((*honest, *hostile))}
    accused = {who for who, _ in values_of(texts).misleading()}
    assert accused.isdisjoint(map(account, range(len(honest))))


def test_the_account_updated_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_values, "MAX_PAIRS", 3)
    values = values_of({1: [HONEST] * 6, 2: [HONEST] * 6, 3: [NONSENSE] * 6})
    learn(values, 1, HONEST)
    assert values.standard(FAMILY) == pytest.approx(HONEST)
    learn(values, 4, HONEST)
    assert values.standard(FAMILY) is None, "account 2 is gone, account 4 has one text"


DEPENDENT, SPREAD = 4.0, 3.0
"""Nats by which honest steps depend on their prompt early in training, and how much texts differ."""


class Teachers:
    """Accounts whose texts have random nats at one split around a mean of each; nothing is likely yet."""

    def __init__(self, split: int = 0) -> None:
        self.values = StepValues()
        self._split = split
        self._draw = random.Random("teachers")

    def teach(self, means: Mapping[tuple[int, int], float], *, rounds: int, texts: int = 2) -> None:
        """Show texts of each account and family in every round."""
        for _ in range(rounds):
            self.values.learn(
                (account(number), family, self._value(mean))
                for (number, family), mean in means.items()
                for _ in range(texts)
            )

    def _value(self, mean: float) -> StepValue:
        return dependent(self._draw.gauss(mean, SPREAD), self._split)


def dependent(nats: float, split: int = 0) -> StepValue:
    """Return the value of an unlikely text with these nats at one split, and none known at the others."""
    return StepValue(0.01, tuple(nats if each == split else None for each in range(len(SPLITS))))


def means(honest: int, independent: int, families: Sequence[int] = (FAMILY,)) -> dict[tuple[int, int], float]:
    """Return mean nats of honest accounts, then of accounts whose steps do not depend on the prompt."""
    found = {(number, family): DEPENDENT for number in range(honest) for family in families}
    others = range(honest, honest + independent)
    return found | {(number, family): 0.0 for number in others for family in families}


@pytest.mark.parametrize("split", range(len(SPLITS)), ids=map(str, SPLITS))
def test_steps_that_do_not_depend_on_what_is_before_them_mislead(split: int) -> None:
    """Early, when no text is likely; the honest majority is never set aside on the way."""
    teachers = Teachers(split)
    for _ in range(40):
        teachers.teach(means(6, 5), rounds=1)
        assert teachers.values.misleading() <= {(account(number), FAMILY) for number in range(6, 11)}
    assert teachers.values.misleading() == {(account(number), FAMILY) for number in range(6, 11)}


def test_an_account_below_over_all_families_is_below_in_one_with_few_texts() -> None:
    teachers = Teachers()
    teachers.teach(means(6, 1, families=(1, 2, 3)), rounds=12)
    teachers.teach(means(6, 0, families=(4,)), rounds=12)
    teachers.teach({(6, 4): 0.0}, rounds=1, texts=LEAST_TEXTS - 1)
    assert teachers.values.misleading() == {(account(6), family) for family in (1, 2, 3, 4)}


def test_an_account_that_misleads_in_some_families_is_trained_in_the_one_where_it_surely_does_not() -> None:
    teachers = Teachers()
    shown = means(6, 1, families=(1, 2, 3)) | means(7, 0, families=(4,))
    teachers.teach(shown, rounds=40)
    assert teachers.values.misleading() == {(account(6), family) for family in (1, 2, 3)}


def test_what_was_little_then_is_compared_with_the_standard_of_then() -> None:
    """Information grows while the policy learns; who was last heard early is no worse for it."""
    teachers = Teachers()
    early = means(7, 0)
    teachers.teach(early, rounds=16)
    late = {pair: 20.0 for pair in early if pair[0] != 6}
    teachers.teach(late, rounds=30)
    (standard, *_) = teachers.values.dependence_standards(FAMILY)
    assert standard is not None
    assert standard > 3 * DEPENDENT
    assert teachers.values.misleading() == frozenset()


@pytest.mark.parametrize("mean", [LEAST_DEPENDENCE - 0.5, -DEPENDENT])
def test_nobody_is_compared_where_the_median_account_depends_little(mean: float) -> None:
    teachers = Teachers()
    teachers.teach({(number, FAMILY): mean if number < 6 else -10.0 for number in range(7)}, rounds=40)
    assert teachers.values.dependence_standards(FAMILY) == (None,) * len(SPLITS)
    assert teachers.values.misleading() == frozenset()


def test_texts_that_were_compared_with_nothing_count_for_likelihood_alone() -> None:
    values = values_of({1: [HONEST] * 6, 2: [HONEST] * 6, 3: [HONEST] * 6})
    assert values.dependence_standards(FAMILY) == (None,) * len(SPLITS)
    assert values.misleading() == frozenset()


def test_one_extreme_text_does_not_hide_an_account() -> None:
    """A large variance would make its mean uncertain, so each text's part of the standard is bounded."""
    teachers = Teachers()
    teachers.teach(means(6, 1), rounds=30)
    for nats in (1e6, -1e6):
        teachers.values.learn([(account(6), FAMILY, dependent(nats))])
    assert teachers.values.misleading() == {(account(6), FAMILY)}


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_a_mean_within_its_window_is_the_arithmetic_one(found: list[float]) -> None:
    mean = Mean()
    for value in found:
        mean = mean.with_value(value, 40)
    exact = sum(found) / len(found)
    assert mean.value == pytest.approx(exact, abs=1e-9)
    assert mean.variance == pytest.approx(sum((value - exact) ** 2 for value in found) / len(found), abs=1e-9)
    assert mean.count == len(found)
