"""Newcomers' lots: constant for some epochs, then drawn again, and better with more weight."""

import math

import pytest

from sapo_protocol.identifiers import Account
from sapo_verification.sampling import newcomers
from sapo_verification.sampling.newcomers import LOT_EPOCHS, NewcomerLots

MANY = 4000


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


def order(lots: NewcomerLots, epoch: int, count: int = 20) -> list[int]:
    """Return accounts by their lots in an epoch."""
    return sorted(range(count), key=lambda number: lots.lot(account(number), epoch))


def test_lots_are_valid_for_some_epochs_and_differ_between_nodes() -> None:
    lots = NewcomerLots(b"key")
    orders = [order(lots, epoch) for epoch in range(3 * LOT_EPOCHS)]
    assert [orders.index(each) for each in orders] == [
        *[0] * LOT_EPOCHS,
        *[LOT_EPOCHS] * LOT_EPOCHS,
        *[2 * LOT_EPOCHS] * LOT_EPOCHS,
    ]
    assert order(NewcomerLots(b"key"), 0) == orders[0] != order(NewcomerLots(b"other"), 0)


def test_accounts_with_more_weight_come_first_in_proportion() -> None:
    lots = NewcomerLots(b"key")
    for number in range(0, 2 * MANY, 2):
        lots.weigh(account(number), 3.0)
    before = sum(lots.lot(account(n), 0) < lots.lot(account(n + 1), 0) for n in range(0, 2 * MANY, 2))
    assert before / MANY == pytest.approx(3 / 4, abs=0.03)


def test_without_weight_an_account_is_behind_all_others_until_it_has_some() -> None:
    lots = NewcomerLots(b"key")
    usual = lots.lot(account(1), 0)
    lots.weigh(account(1), 0.0)
    assert lots.lot(account(1), 0) == math.inf
    lots.weigh(account(1), 1.0)
    assert lots.lot(account(1), 0) == usual


def test_the_weight_set_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newcomers, "MAX_WEIGHED", 2)
    lots = NewcomerLots(b"key")
    for number in (1, 2, 1, 3):
        lots.weigh(account(number), 0.0)
    assert [lots.lot(account(n), 0) == math.inf for n in (1, 2, 3)] == [True, False, True]
