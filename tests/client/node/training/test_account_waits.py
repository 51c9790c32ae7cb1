"""Who may have done harm waits, one account for itself; a few of them do not keep out the text of all."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import pytest
from support.canary_pulses import Node, Plan

from sapo_client.node.training.account_waits import MAX_ACCOUNTS, MAX_DOUBLINGS, AccountWaits, Blamed
from sapo_protocol.identifiers import Account

ONE, TWO, NEW = (Account(bytes([number]) * Account.SIZE) for number in (1, 2, 3))


def test_all_whose_text_was_trained_wait_for_random_times() -> None:
    waits = {
        tuple(each.waits for each in AccountWaits().using((ONE, TWO)).harmed(random.Random(seed)).blamed)
        for seed in range(20)
    }
    assert waits == {(1, 1), (1, 2), (2, 1), (2, 2)}
    found = AccountWaits().using((TWO, ONE)).harmed(random.Random(0))
    assert [(each.account, each.setbacks) for each in found.blamed] == [(ONE, 1), (TWO, 1)]
    assert (found.used, found.cleared) == ((), ())
    assert found.waiting == {ONE, TWO}
    assert found.passed().passed().waiting == frozenset()


def test_harm_is_blamed_on_accounts_that_never_taught_without_it() -> None:
    cleared = AccountWaits().using((ONE, TWO)).taught()
    assert cleared == AccountWaits(used=(ONE, TWO), cleared=(ONE, TWO))
    found = cleared.using((ONE, NEW))
    assert found.used == (TWO, ONE, NEW)
    after = found.harmed(random.Random(0))
    assert after.waiting == {NEW}
    assert after.cleared == ()
    assert cleared.suspects == {ONE, TWO}, "if there are no others"
    assert cleared.using((NEW,)).taught().cleared == (ONE, TWO, NEW)


def test_an_account_that_did_harm_once_unblamed_is_blamed_the_next_time() -> None:
    """However many new accounts are there to take the blame."""
    found = AccountWaits().using((ONE,)).taught().using((NEW,)).harmed(random.Random(0))
    assert found.using((ONE, TWO)).suspects == {ONE, TWO}
    assert found.using((ONE,)).taught().using((TWO,)).suspects == {TWO}, "it taught without harm again"


def test_waiting_times_double_and_shrink_with_what_is_taught_without_harm() -> None:
    found, most = AccountWaits(), list[int]()
    for _ in range(MAX_DOUBLINGS + 2):
        draws = [found.using((ONE,)).harmed(random.Random(seed)) for seed in range(400)]
        most.append(max(each.blamed[0].waits for each in draws))
        found = draws[0]
    assert most == [2, 4, 8, 16, 32, 64, 128, 128, 128]
    before = AccountWaits(used=(ONE,), blamed=(Blamed(ONE, 2, 0), Blamed(TWO, 1, 3)))
    once = before.taught()
    assert once.blamed == (Blamed(ONE, 1, 0), Blamed(TWO, 1, 3)), "who waits has not taught"
    assert once.taught().blamed == (Blamed(TWO, 1, 3),)


def test_a_bounded_number_of_accounts_is_remembered() -> None:
    many = [Account(number.to_bytes(Account.SIZE, "big")) for number in range(MAX_ACCOUNTS + 1)]
    found = AccountWaits().using(many)
    assert found.used == tuple(many[1:])
    after = found.harmed(random.Random(0)).using(many[:1]).harmed(random.Random(0))
    assert len(after.blamed) == MAX_ACCOUNTS
    assert after.blamed[-1].account == many[0]


@pytest.mark.parametrize("attack", ["one family", "once the policy is its own shadow"])
async def test_one_account_does_not_keep_out_what_the_others_teach(tmp_path: Path, attack: str) -> None:
    """It harms whenever its text is used, and nobody else does; alone a node comes from 0.3 to 0.46."""
    found = await Node(Plan(attack, attackers=1), tmp_path).run()
    assert fmean(found.taught) > 0.6
    assert found.levels[-1] > 0.6


async def test_new_accounts_each_time_close_the_node_as_before(tmp_path: Path) -> None:
    """So that they do harm ten times in two hundred checks, and not in each."""
    found = await Node(Plan("one family", attackers=2, fresh=True), tmp_path).run()
    assert found.returned < 13
    assert found.attacked < 80
    assert found.levels[-1] > 0.4
