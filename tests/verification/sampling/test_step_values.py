"""Which accounts' steps mislead: far below the median account of a family, and never before there is one."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.identifiers import Account
from sapo_verification.sampling import step_values
from sapo_verification.sampling.step_values import (
    LEAST_ACCOUNTS,
    LEAST_STANDARD,
    LEAST_TEXTS,
    MISLEADING_BELOW,
    TEXTS_IN_MEAN,
    StepValues,
)

HONEST, NONSENSE, FAMILY = 0.9, 0.1, 3


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


def values_of(texts: Mapping[int, Sequence[float]], family: int = FAMILY) -> StepValues:
    values = StepValues()
    for number, found in texts.items():
        for value in found:
            values.learn(account(number), family, value)
    return values


def test_who_is_far_below_the_median_misleads_in_that_family_only() -> None:
    values = values_of({1: [HONEST] * 6, 2: [0.8] * 6, 3: [NONSENSE] * 6, 4: [0.6] * 6})
    values.learn(account(3), FAMILY + 1, NONSENSE)
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
        values.learn(account(3), FAMILY, HONEST)
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
    values.learn(account(1), FAMILY, HONEST)
    assert values.standard(FAMILY) == pytest.approx(HONEST)
    values.learn(account(4), FAMILY, HONEST)
    assert values.standard(FAMILY) is None, "account 2 is gone, account 4 has one text"
