"""The accounts' records by page: order, search, bans, and ten thousand accounts."""

from pathlib import Path

import pytest

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.account_list import ORDERS, ListedAccount, list_accounts
from sapo_verification.reputation.evidence import BAN_EPOCHS, Reputation
from sapo_verification.store import transaction

MANY = 10_000


def account(number: int) -> Account:
    return Account(number.to_bytes(20, "big"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.sqlite"


def test_an_entry_equals_the_reputation(path: Path) -> None:
    reputation = Reputation(path)
    for family in (0, 1):
        reputation.record_good(account(1), family, epoch=2)
    reputation.record_fault(account(2), 0, epoch=2, reason=Reason.EQUIVOCATION)
    page = list_accounts(path, 5, order="account")
    assert page.total == 2
    assert page.entries == (
        ListedAccount(account(1), reputation.evidence(account(1), 5), None),
        ListedAccount(account(2), reputation.evidence(account(2), 5), 2 + BAN_EPOCHS),
    )


def test_ten_thousand_accounts_come_in_pages(path: Path) -> None:
    reputation = Reputation(path)
    with transaction(reputation._connection):
        for number in range(MANY):
            reputation.record_good(account(number), 0, epoch=1)
        for _ in range(3):
            reputation.record_good(account(77), 1, epoch=1)
    assert [entry.account for entry in list_accounts(path, 1, limit=3).entries] == [
        account(n) for n in (77, 0, 1)
    ]
    last = list_accounts(path, 1, order="account", offset=MANY - 1, limit=50)
    assert (last.total, [entry.account for entry in last.entries]) == (MANY, [account(MANY - 1)])
    found = list_accounts(path, 1, find=f"0x{account(4711).hex()}")
    assert (found.total, [entry.account for entry in found.entries]) == (1, [account(4711)])
    assert list_accounts(path, 1, find="%").total == 0  # it is text, not a pattern
    for order in ORDERS:
        assert len(list_accounts(path, 1, order=order, offset=5, limit=50).entries) == 50
