"""The number of islands: doubling, halving, hysteresis, and limited history."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.constants import CONTRIBUTION_EPOCHS, EPOCH_WINDOW, MERGED_EPOCHS, PAID_EPOCHS
from sapo_protocol.islands.count import counted_epochs, first_counted, island_count
from sapo_protocol.terms.islands import IslandTerms

TERMS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=144, most_islands=64)

FEW = [47] * MERGED_EPOCHS
"""Too few accounts for two islands, for so many epochs that these merge."""

paid_accounts = st.lists(st.integers(0, 10**6), max_size=40)


@pytest.mark.parametrize(
    ("paid", "count"),
    [
        ([], 1),
        ([64], 1),
        ([65], 2),
        ([64, 129], 4),
        ([65, 48], 2),
        ([65, 47], 2),
        ([65, *FEW[1:]], 2),
        ([65, *FEW], 1),
        ([65, *FEW, 64], 1),
        ([65, *FEW[1:], 48, *FEW[1:]], 2),
        ([10**9], 64),
        ([10**9, *FEW], 1),
    ],
)
def test_the_count_doubles_above_and_halves_below_its_bounds(paid: list[int], count: int) -> None:
    assert island_count(TERMS, paid) == count


def test_without_terms_or_with_a_constant_nothing_is_counted() -> None:
    assert island_count(None, [10**6]) == 1
    assert island_count(replace(TERMS, count=8), [10**6]) == island_count(replace(TERMS, count=8), []) == 8


@given(paid_accounts)
def test_the_count_is_a_power_of_two_within_bounds(paid: list[int]) -> None:
    assert island_count(TERMS, paid) in {2**n for n in range(7)}


@given(st.sets(st.integers(0, 60)), st.integers(0, 70))
def test_the_last_epochs_are_counted_or_the_newest_older_one(final: set[int], epoch: int) -> None:
    ascending = sorted(final)
    counted = counted_epochs(ascending, epoch)
    assert list(counted) == ascending[len(ascending) - len(counted) :]
    assert bool(counted) == bool(final)
    assert all(one >= first_counted(epoch) for one in counted) or len(counted) == 1


def test_twelve_epochs_are_counted_and_no_older_one() -> None:
    assert counted_epochs(range(40), 30) == tuple(range(17, 40))
    assert counted_epochs(range(17), 30) == (16,)


def test_a_joining_node_can_get_all_counted_proposals() -> None:
    """The oldest epoch that matters to a node at the end of an epoch is still accepted then."""
    for now in range(40, 50):
        oldest_carried = now - EPOCH_WINDOW - 1  # by a clock that is slow by the tolerance
        assert first_counted(oldest_carried) + CONTRIBUTION_EPOCHS >= now


@given(paid_accounts.filter(bool))
def test_accounts_per_island_are_within_bounds_after_the_newest_epochs(paid: list[int]) -> None:
    count, latest = island_count(TERMS, paid), paid[-MERGED_EPOCHS:]
    assert latest[-1] <= TERMS.most_accounts * count or count == TERMS.most_islands
    is_young = len(paid) < MERGED_EPOCHS
    assert max(latest) >= TERMS.least_accounts * count or count == 1 or is_young


@given(st.integers(65, 128), st.lists(st.integers(48, 128), max_size=PAID_EPOCHS - 1))
def test_numbers_between_the_bounds_do_not_change_the_count(first: int, later: list[int]) -> None:
    assert island_count(TERMS, [first, *later]) == 2


@given(st.integers(0, 10**5))
def test_a_steady_number_has_the_fewest_islands_that_hold_it(accounts: int) -> None:
    count = island_count(TERMS, [accounts] * PAID_EPOCHS)
    assert count == min(64, next(2**n for n in range(20) if accounts <= 64 * 2**n))


@given(st.lists(st.booleans(), min_size=1, max_size=80))
def test_one_account_more_or_less_changes_the_count_at_most_twice_in_a_window(spikes: list[bool]) -> None:
    """The attacker adds one paid account to as many as just fit on an island, or takes it away, at will."""
    assert changes([64 + spike for spike in spikes]) <= 2 * (len(spikes) // (PAID_EPOCHS + 1) + 1)


@given(st.lists(st.booleans(), min_size=1, max_size=80))
def test_many_accounts_more_or_less_change_it_rarely(spikes: list[bool]) -> None:
    """The attacker has half as many accounts as the honest ones. With them paid in every second epoch the
    number of islands changed in each: an honest account moved in 61 of a hundred epochs, not in 22 or fewer.
    """
    paid = [360 + 180 * spike for spike in spikes]
    assert changes(paid) <= 2 * (len(spikes) // (MERGED_EPOCHS + 1) + 1)


def changes(paid: list[int]) -> int:
    """Return how often the number of islands changes while these are paid, an epoch each."""
    counts = []
    for epoch in range(2, len(paid) + 2):
        counted = counted_epochs(range(epoch - 1), epoch)
        counts.append(island_count(TERMS, [paid[one] for one in counted]))
    return sum(before != after for before, after in pairwise(counts))
