"""Counts of runs of text in memory of fixed size."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_verification.screens.run_counts import RunCounts

HASHES = st.integers(0, 2**64 - 1)


def test_counts_and_shares_are_those_of_the_groups() -> None:
    counts = RunCounts(width=64, fade_groups=100)
    for number in range(8):
        counts.add([1, 2] if number < 2 else [2])
    assert [(counts.count(run), counts.share(run)) for run in (1, 2, 3)] == [(2, 0.25), (8, 1.0), (0, 0.0)]
    assert RunCounts(width=64, fade_groups=100).share(1) == 0.0


def test_all_counts_are_halved_once_there_are_many_groups() -> None:
    counts = RunCounts(width=64, fade_groups=8)
    for number in range(8):
        counts.add([1, 2] if number < 4 else [2])
    counts.add([2])
    assert (counts.groups, counts.count(1), counts.count(2)) == (5, 2, 5)


def test_runs_that_share_a_cell_are_distinguished_by_other_rows() -> None:
    counts = RunCounts(width=64, fade_groups=100)
    counts.add([1])
    assert [counts.count(1 + (1 << bits)) for bits in (10, 20, 40)] == [1, 0, 0]


@given(st.lists(st.frozensets(HASHES, max_size=20), max_size=30))
def test_no_count_is_too_small(groups: list[frozenset[int]]) -> None:
    counts = RunCounts(width=16, fade_groups=100)
    for group in groups:
        counts.add(group)
    for run in frozenset().union(*groups):
        assert sum(run in group for group in groups) <= counts.count(run)
