"""Newcomers' lots: constant for some epochs, then drawn again, and better with more weight."""

import math

import pytest
from support.swarm import make_chain_manifest, make_manifest

from sapo_protocol.identifiers import Account
from sapo_protocol.terms.gate import BondGate
from sapo_verification.sampling.newcomers import LOT_EPOCHS, NewcomerLots
from sapo_verification.standing import Standing

MANY = 4000
OWN = Account(bytes(20))
GATED = make_chain_manifest(version=2, gate=BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32))


def account(number: int) -> Account:
    return Account(number.to_bytes(Account.SIZE, "big"))


def whole(_account: Account) -> float:
    """Return that all groups of an account passed."""
    return 1.0


def equal_lots(key: bytes) -> NewcomerLots:
    """Return lots in a swarm without a gate, in which all accounts have the same weight."""
    return NewcomerLots(key, Standing(make_manifest(), OWN), passing_part=whole)


def order(lots: NewcomerLots, epoch: int, count: int = 20) -> list[int]:
    """Return accounts by their lots in an epoch."""
    return sorted(range(count), key=lambda number: lots.lot(account(number), epoch))


def test_lots_are_valid_for_some_epochs_and_differ_between_nodes() -> None:
    lots = equal_lots(b"key")
    orders = [order(lots, epoch) for epoch in range(3 * LOT_EPOCHS)]
    assert [orders.index(each) for each in orders] == [
        *[0] * LOT_EPOCHS,
        *[LOT_EPOCHS] * LOT_EPOCHS,
        *[2 * LOT_EPOCHS] * LOT_EPOCHS,
    ]
    assert order(equal_lots(b"key"), 0) == orders[0] != order(equal_lots(b"other"), 0)


def test_accounts_with_more_weight_come_first_in_proportion() -> None:
    standing = Standing(GATED, OWN)
    lots = NewcomerLots(b"key", standing, passing_part=whole)
    standing.learn(0, {account(number): 25 if number % 2 else 75 for number in range(2 * MANY)})
    before = sum(lots.lot(account(n), 0) < lots.lot(account(n + 1), 0) for n in range(0, 2 * MANY, 2))
    assert before / MANY == pytest.approx(3 / 4, abs=0.03)


def test_without_weight_an_account_is_behind_all_others_until_it_has_some() -> None:
    standing = Standing(GATED, OWN)
    lots = NewcomerLots(b"key", standing, passing_part=whole)
    standing.learn(0, {})
    assert lots.lot(account(1), 0) == math.inf
    standing.learn(1, {account(1): 100})
    assert lots.lot(account(1), 0) == equal_lots(b"key").lot(account(1), 0)
