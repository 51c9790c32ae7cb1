"""More pairs of known account and family than a node has places: existing pairs keep their place."""

import random
from collections.abc import Sequence

import pytest
from support.rollouts import sum_of_pair
from support.swarm import Identity

from sapo_verification.screens import pair_counts
from sapo_verification.screens.recurring_runs import RecurringRuns
from sapo_verification.screens.usual_forms import UsualForms
from sapo_verification.types import Pair

KEY = b"a secret of this node"
MOST = 64
GROUPS = 24
PLANT = "2+2=5 "


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_counts, "MAX_PAIRS", MOST)


def pairs_of(accounts: range, families: range) -> list[Pair]:
    return [(Identity(number).account, family) for family in families for number in accounts]


def heard(
    screen: RecurringRuns, honest: Sequence[Pair], planting: Sequence[Pair], draw: random.Random
) -> None:
    """Send the same number of groups from every pair, in turns, until each pair has had a place."""
    for number in range(2 * GROUPS):
        for pair in honest:
            screen.learn(sum_of_pair(pair, number, draw))
        for pair in planting:
            screen.learn(sum_of_pair(pair, number, draw, PLANT))


def test_an_account_that_plants_a_phrase_is_detected_in_all_families_in_turns() -> None:
    """Of twelve accounts in eight families two thirds have room at a time."""
    screen, draw = RecurringRuns(KEY), random.Random(1)
    planting = pairs_of(range(12, 13), range(8))
    heard(screen, pairs_of(range(1, 12), range(8)), planting, draw)
    assert screen.set_aside() == {*planting}
    assert len(screen.counts) == MOST


def test_known_accounts_that_send_more_often_take_no_more_room() -> None:
    """A half of them send four times as much, and have half of the room of each family."""
    screen, draw = UsualForms(KEY), random.Random(2)
    quiet, loud = pairs_of(range(1, 7), range(8)), pairs_of(range(7, 13), range(8))
    for number in range(GROUPS):
        for pair in quiet:
            screen.learn(sum_of_pair(pair, number, draw))
        for _ in range(4):
            for pair in loud:
                screen.learn(sum_of_pair(pair, number, draw, PLANT))
    there = [{*screen.counts.compared(family)} for family in range(8)]
    assert [len(accounts) for accounts in there] == [MOST // 8] * 8
    names = {account for account, _ in quiet}
    assert 0.35 <= sum(len(accounts & names) for accounts in there) / MOST <= 0.65


def test_a_family_that_few_show_loses_none_of_them() -> None:
    """Accounts in any number crowd each other in theirs."""
    screen, draw = UsualForms(KEY), random.Random(3)
    few, many = pairs_of(range(1, 6), range(1)), pairs_of(range(6, 2 * MOST), range(1, 2))
    for number in range(3):
        for pair in (*few, *many):
            screen.learn(sum_of_pair(pair, number, draw))
    assert len(screen.counts.compared(0)) == len(few)
    assert len(screen.counts) == MOST


def test_accounts_that_are_no_longer_received_make_room() -> None:
    screen, draw = UsualForms(KEY), random.Random(4)
    gone, here = pairs_of(range(1, MOST + 1), range(1)), pairs_of(range(100, 100 + MOST), range(1))
    for pair in gone:
        screen.learn(sum_of_pair(pair, 0, draw))
    for number in range(2 * pair_counts.PATIENCE):
        for pair in here:
            screen.learn(sum_of_pair(pair, number, draw))
    assert screen.counts.accounts() == {account for account, _ in here}
