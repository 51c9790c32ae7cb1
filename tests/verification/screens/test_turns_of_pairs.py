"""Pairs of known account and family take turns where they are more than a node has room for."""

import random
from collections.abc import Sequence

import pytest
from support.rollouts import rollout_of, sum_of_pair
from support.swarm import Identity

from sapo_protocol.identifiers import Account
from sapo_verification.screens import pair_counts, recurring_runs
from sapo_verification.screens.recurring_runs import RecurringRuns
from sapo_verification.screens.step_lengths import StepLengths
from sapo_verification.types import Pair

KEY = b"a secret of this node"
MOST = 16
FAMILIES = range(2)
HONEST = [Identity(number).account for number in range(1, 22)]
PLANTING = [Identity(number).account for number in range(22, 25)]
ROUNDS = 120
PLANT = "2+2=5 "


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_counts, "MAX_PAIRS", MOST)


def pairs_of(accounts: Sequence[Account]) -> list[Pair]:
    return [(account, family) for family in FAMILIES for account in accounts]


def screened() -> RecurringRuns:
    """Return a screen after as many groups of every pair, three times as many pairs as have room."""
    screen, draw = RecurringRuns(KEY), random.Random(1)
    for number in range(ROUNDS):
        for pair in pairs_of(HONEST):
            screen.learn(sum_of_pair(pair, number, draw))
        for pair in pairs_of(PLANTING):
            screen.learn(sum_of_pair(pair, number, draw, PLANT))
    return screen


def test_only_accounts_that_plant_a_phrase_are_detected_in_their_turns() -> None:
    """And stays found while it plants, also without a place."""
    screen, draw = screened(), random.Random(2)
    for number in range(ROUNDS):
        assert screen.set_aside() == {*pairs_of(PLANTING)}
        for pair in pairs_of(HONEST):
            screen.learn(sum_of_pair(pair, number, draw))
        for pair in pairs_of(PLANTING):
            screen.learn(sum_of_pair(pair, number, draw, PLANT))
    assert len(screen.counts) == MOST


def test_a_detected_account_stays_set_aside_until_it_has_a_place_and_stops() -> None:
    screen, draw = screened(), random.Random(2)
    for number in range(8):
        for pair in pairs_of([*HONEST, *PLANTING]):
            screen.learn(sum_of_pair(pair, number, draw))
    assert len(screen.set_aside()) >= len(pairs_of(PLANTING)) - MOST
    for number in range(2 * ROUNDS):
        for pair in pairs_of([*HONEST, *PLANTING]):
            screen.learn(sum_of_pair(pair, number, draw))
    assert screen.set_aside() == frozenset()


def test_the_number_of_detected_pairs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurring_runs, "MAX_SET_ASIDE", 4)
    assert len(screened().set_aside()) == 4


def test_a_detected_newcomer_that_lost_its_place_is_not_set_aside() -> None:
    """A flood of newcomers that plant takes the room of nobody who was found."""
    flood = [Identity(number).account for number in range(100, 100 + 2 * MOST)]
    screen, draw = RecurringRuns(KEY, lambda account: account in {*flood}), random.Random(3)
    for number in range(12):
        for account in HONEST[:4]:
            screen.learn(sum_of_pair((account, 0), number, draw))
    screen.counts.weigh(dict.fromkeys(HONEST[:4], 1.0))
    for account in flood:
        for number in range(12):
            screen.learn(sum_of_pair((account, 0), number, draw, PLANT))
    assert screen.set_aside() == {(account, 0) for account in flood[4 - MOST :]}


def test_an_account_with_longer_steps_is_detected_in_its_turn_and_stays_set_aside() -> None:
    """Seven of sixteen accounts have room at a time."""
    screen, accounts = StepLengths(KEY), [*HONEST[:13], *PLANTING]
    weights = dict.fromkeys(accounts, 1.0)
    for number in range(ROUNDS):
        for account in accounts:
            steps = "9" * (40 if account in PLANTING else 20)
            text = f"{steps}<answer>1</answer>".encode()
            for family in FAMILIES:
                screen.learn(rollout_of(account, number, {text: 1.0}, family, "1+1"))
        screen.weigh(weights, lambda _family, _account, _other: False)
    assert screen.longer() == {*pairs_of(PLANTING)}
    for number in range(2 * ROUNDS):
        for account in accounts:
            for family in FAMILIES:
                screen.learn(
                    rollout_of(account, number, {b"9" * 20 + b"<answer>1</answer>": 1.0}, family, "1+1")
                )
        screen.weigh(weights, lambda _family, _account, _other: False)
    assert screen.longer() == frozenset()
