"""List of the accounts that a node has evidence about, in pages, read from its database beside the engine."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.reputation.evidence import SCHEMA, Evidence, sum_evidence
from sapo_verification.store import open_for_reading

ORDERS: Final = {
    "audits": "SUM(audits) DESC, account",
    "bad": "SUM(bad) DESC, account",
    "good": "SUM(good) DESC, account",
    "account": "account",
}
"""SQL orders of the accounts by their names."""

_COUNT: Final = "SELECT COUNT(DISTINCT account) FROM evidence WHERE substr(hex(account), 1, length(?1)) = ?1"
_ACCOUNTS: Final = (
    "SELECT account FROM evidence WHERE substr(hex(account), 1, length(?1)) = ?1 GROUP BY account"
)


@dataclass(frozen=True, slots=True)
class ListedAccount:
    """One account with its evidence.

    Attributes:
        evidence: over all families, as of the epoch asked for.
        banned_until: epoch before which it is banned; none if it never was.
    """

    account: Account
    evidence: Evidence
    banned_until: int | None


@dataclass(frozen=True, slots=True)
class AccountList:
    """A page of accounts, and the number of accounts on all pages."""

    entries: tuple[ListedAccount, ...]
    total: int


def list_accounts(
    path: Path, epoch: int, *, order: str = "audits", find: str = "", offset: int = 0, limit: int = 50
) -> AccountList:
    """Return accounts with evidence, in one of ``ORDERS``.

    Args:
        find: hexadecimal digits that an account begins with.

    Raises:
        sqlite3.OperationalError: there is no such file.
    """
    with closing(open_for_reading(path, SCHEMA)) as connection:
        begins = find.removeprefix("0x").upper()
        total = connection.execute(_COUNT, (begins,)).fetchone()[0]
        page = f"{_ACCOUNTS} ORDER BY {ORDERS[order]} LIMIT ?2 OFFSET ?3"
        accounts = connection.execute(page, (begins, limit, offset)).fetchall()
        entries = tuple(_entry(connection, bytes(account), epoch) for (account,) in accounts)
        return AccountList(entries, int(total))


def _entry(connection: sqlite3.Connection, account: bytes, epoch: int) -> ListedAccount:
    rows: Sequence[tuple[float, float, int, int, int]] = connection.execute(
        "SELECT good, bad, audits, epoch, passed FROM evidence WHERE account = ?", (account,)
    ).fetchall()
    ban = connection.execute("SELECT until_epoch FROM ban WHERE account = ?", (account,)).fetchone()
    evidence = sum_evidence(*(Evidence(*row) for row in rows)).at(epoch)
    return ListedAccount(Account(account), evidence, int(ban[0]) if ban else None)
