"""Suspension of penalties: when most accounts fail one check at once, the fault is probably this node's.

A changed library, a wrong beacon or a broken checker makes every honest author fail the same check in the
same epoch. Soft penalties for that check and epoch are then taken back, also those given before it was
noticed, and restored if the failing accounts turn out to be a minority: within an epoch the outcome does not
depend on the order of the audits. The epoch in which an audit is made counts, not that of its rollout: a
checker breaks at one time, for old rollouts too. Hard evidence is never suspended, because it is a proof by
itself. (Templar's validators have a rule of this kind for bad rounds.)

The voters are the accounts of which enough groups passed to carry weight; otherwise an attacker could end its
own penalties with many new accounts. Only if fewer than ``MIN_VOTERS`` accounts carry weight, all accounts
vote.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.failure_votes import FailureVotes
from sapo_verification.store import StoreSchema

MIN_VOTERS: Final = 5
"""Accounts with weight that are needed to vote alone; among fewer, two faulty ones could be half."""

REMEMBERED_EPOCHS: Final = 4
"""Epochs for which outcomes are kept; a rollout is audited in its epoch or the one after it."""

SCHEMA: Final = StoreSchema(
    "suspensions",
    """
    CREATE TABLE IF NOT EXISTS outcome (
        epoch INTEGER NOT NULL, reason TEXT NOT NULL, account BLOB NOT NULL, family INTEGER NOT NULL,
        audits INTEGER NOT NULL, severity REAL NOT NULL,
        PRIMARY KEY (epoch, reason, account, family)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS suspended (
        epoch INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (epoch, reason)
    ) WITHOUT ROWID;
    """,
)

_PASSED: Final = ""
"""Stored in place of a reason for an audit that a group passed."""


@dataclass(frozen=True, slots=True)
class Change:
    """Soft evidence to be taken back (negative) or restored (positive)."""

    account: Account
    family: int
    severity: float


def is_probably_ours(failing: int, voters: int) -> bool:
    """Whether so many of the audited accounts fail a check that the fault is probably this node's."""
    return voters >= MIN_VOTERS and 2 * failing > voters


class Suspensions:
    """Outcomes of the audits of the last epochs, and the checks whose penalties are suspended.

    Args:
        carries_weight: whether enough groups of an account passed for it to be weighed.
    """

    def __init__(self, connection: sqlite3.Connection, carries_weight: Callable[[Account], bool]) -> None:
        self._connection = connection
        self._carries_weight = carries_weight
        self._newest_epoch: int = connection.execute("SELECT MAX(epoch) FROM outcome").fetchone()[0] or 0
        self._votes = FailureVotes(carries_weight)
        rows = connection.execute(
            "SELECT account, reason, audits FROM outcome WHERE epoch = ?", (self._newest_epoch,)
        )
        for account, reason, audits in rows:
            self._votes.note(Account(account), reason or None, audits)

    def moment(self, epoch: int) -> int:
        """Return the epoch in which an audit is made: the newest one known, at least the rollout's
        ``epoch``."""
        return max(epoch, self._newest_epoch)

    def note(self, account: Account, family: int, epoch: int, reason: Reason | None, severity: float) -> None:
        """Record an audit of the current epoch; no reason means that the group passed."""
        self._connection.execute(
            "INSERT INTO outcome VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT DO UPDATE"
            " SET audits = audits + 1, severity = severity + excluded.severity",
            (epoch, reason or _PASSED, account, family, severity),
        )
        if epoch > self._newest_epoch:
            self._newest_epoch, self._votes = epoch, FailureVotes(self._carries_weight)
            for table in ("outcome", "suspended"):
                statement = f"DELETE FROM {table} WHERE epoch <= ?"  # noqa: S608  our own two names
                self._connection.execute(statement, (epoch - REMEMBERED_EPOCHS,))
        self._votes.note(account, reason)

    def recount(self, account: Account) -> None:
        """Count an account's votes again, since it may have begun to carry weight."""
        self._votes.recount(account)

    def is_suspended(self, epoch: int, reason: Reason) -> bool:
        """Whether the penalties for failing a check in an epoch are suspended."""
        query = "SELECT 1 FROM suspended WHERE epoch = ? AND reason = ?"
        return self._connection.execute(query, (epoch, reason)).fetchone() is not None

    def suspended(self, epoch: int) -> tuple[Reason, ...]:
        """Return the checks whose penalties are suspended in an epoch."""
        query = "SELECT reason FROM suspended WHERE epoch = ? ORDER BY reason"
        return tuple(Reason(row[0]) for row in self._connection.execute(query, (epoch,)))

    def failed(self) -> tuple[Reason, ...]:
        """Return the checks that any account failed in the current epoch.

        The vote on each has to be reviewed after every audit, also after one that passed.
        """
        return tuple(map(Reason, self._votes.failed()))

    def review(self, epoch: int, reason: Reason) -> tuple[Change, ...]:
        """Update whether a check is suspended after an audit; return the changes of evidence."""
        now = is_probably_ours(*self._votes.count(reason, MIN_VOTERS))
        before = self.is_suspended(epoch, reason)
        if before == now:
            return ()
        self._connection.execute(_SUSPEND if now else _LIFT, (epoch, reason))
        rows = self._connection.execute(
            "SELECT account, family, severity FROM outcome WHERE epoch = ? AND reason = ?", (epoch, reason)
        ).fetchall()
        sign = -1.0 if now else 1.0
        return tuple(Change(Account(account), family, sign * severity) for account, family, severity in rows)


_SUSPEND: Final = "INSERT INTO suspended VALUES (?, ?)"
_LIFT: Final = "DELETE FROM suspended WHERE epoch = ? AND reason = ?"
