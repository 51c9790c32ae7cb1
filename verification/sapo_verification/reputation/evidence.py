"""Reputation: the evidence of this node's own checks about an account.

A Beta reputation per account and family (Jøsang and Ismail, 2002) with decay. The prior is pessimistic, and
the weight is a lower bound of the mean, 0 until enough groups passed: a newcomer has to earn weight, and an
old account can lose it. Only passed groups end an account's time as a newcomer, since uninformative groups,
and faults of a free account, cost nothing to make. Opinions of other nodes are never used, only own
verification and proofs that can be checked here. When most accounts fail the same check at once, its
penalties are suspended (``suspension``).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_verification.bounded_cache import BoundedCache
from sapo_verification.reputation.penalties import CONSEQUENCES, HARD
from sapo_verification.reputation.suspension import SCHEMA as SUSPENSION_SCHEMA
from sapo_verification.reputation.suspension import Suspensions
from sapo_verification.store import Source, StoreSchema, open_database, transaction

PRIOR_GOOD: Final = 1.0
PRIOR_BAD: Final = 3.0
"""An unknown account is assumed to be right a quarter of the time."""

DECAY_PER_EPOCH: Final = 0.98
"""Evidence halves in 34 epochs."""

LOWER_BOUND_DEVIATIONS: Final = 1.28
"""Standard deviations below the mean: the 10 % quantile, so one account in ten gets too high a weight."""

AUDITS_BEFORE_WEIGHT: Final = 20
"""Groups that have to pass an audit before an account is no longer a newcomer, however many failed."""

BAN_EPOCHS: Final = 12
"""Epochs for which hard evidence bans an account here."""

MAX_EVIDENCE: Final = 64.0
"""Largest evidence kept per family, so that a long honest past does not outweigh dishonesty for long."""


MAX_TOTALS: Final = 16_384
"""Accounts whose sums over all families are kept in memory, 200 bytes each; with more it is cleared."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence about one account in one family, without the prior.

    Attributes:
        good: decayed number of groups that passed verification.
        bad: decayed weight of those that failed.
        audits: undecayed number of audited groups, passed or failed.
        epoch: when the decay was last applied.
        passed: undecayed number of groups that passed verification.
    """

    good: float = 0.0
    bad: float = 0.0
    audits: int = 0
    epoch: int = 0
    passed: int = 0

    def at(self, epoch: int) -> "Evidence":
        """Return the evidence as decayed in a later epoch."""
        factor = DECAY_PER_EPOCH ** max(0, epoch - self.epoch)
        later = max(epoch, self.epoch)
        return replace(self, good=self.good * factor, bad=self.bad * factor, epoch=later)

    def plus(self, other: "Evidence") -> "Evidence":
        """Return both pieces of evidence together, at the later of their epochs."""
        epoch = max(self.epoch, other.epoch)
        a, b = self.at(epoch), other.at(epoch)
        return Evidence(a.good + b.good, a.bad + b.bad, a.audits + b.audits, epoch, a.passed + b.passed)

    def bounded(self) -> "Evidence":
        """Return the evidence scaled to at most ``MAX_EVIDENCE``, good and bad in the same proportion."""
        factor = MAX_EVIDENCE / max(MAX_EVIDENCE, self.good + self.bad)
        return replace(self, good=self.good * factor, bad=self.bad * factor)

    @property
    def weight(self) -> float:
        """The lower bound of the account's reliability, 0 to 1; 0 for a newcomer."""
        if self.passed < AUDITS_BEFORE_WEIGHT:
            return 0.0
        alpha, beta = PRIOR_GOOD + self.good, PRIOR_BAD + self.bad
        total = alpha + beta
        deviation = math.sqrt(alpha * beta / (total * total * (total + 1)))
        return max(0.0, alpha / total - LOWER_BOUND_DEVIATIONS * deviation)


@dataclass(frozen=True, slots=True)
class AccountStanding:
    """The weights of known accounts, and the newcomers.

    Attributes:
        weights: lower bound of the reliability of every known account; also 0 for each newcomer whose faults
            weigh as much as hard evidence, so that it gets no share.
        newcomers: all other accounts.
    """

    weights: Mapping[Account, float]
    newcomers: tuple[Account, ...]


SCHEMA: Final = StoreSchema(
    "reputation",
    """
    CREATE TABLE IF NOT EXISTS evidence (
        account BLOB NOT NULL, family INTEGER NOT NULL,
        good REAL NOT NULL, bad REAL NOT NULL, audits INTEGER NOT NULL, epoch INTEGER NOT NULL,
        PRIMARY KEY (account, family)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS ban (account BLOB PRIMARY KEY, until_epoch INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS conviction (
        epoch INTEGER NOT NULL, account BLOB NOT NULL, PRIMARY KEY (epoch, account)
    ) WITHOUT ROWID;
    """,
    # version 1 did not count what passed: at least so many did as there is good evidence left of
    """
    ALTER TABLE evidence ADD COLUMN passed INTEGER NOT NULL DEFAULT 0;
    UPDATE evidence SET passed = MIN(audits, CAST(good AS INTEGER) + (good > CAST(good AS INTEGER)));
    """,
)


class Reputation:
    """Evidence of one node about all accounts, kept in SQLite."""

    def __init__(self, path: Source = ":memory:") -> None:
        self._connection = open_database(path, SCHEMA, SUSPENSION_SCHEMA)
        self._became_known: list[Callable[[Account], None]] = []
        self._audits: Counter[Account] = Counter()
        self._passed: Counter[Account] = Counter()
        for account, audits, passed in self._connection.execute(
            "SELECT account, SUM(audits), SUM(passed) FROM evidence GROUP BY account"
        ):
            self._audits[Account(account)], self._passed[Account(account)] = audits, passed
        self._totals = BoundedCache[Account, Evidence](MAX_TOTALS)
        self._banned_until: dict[Account, int] = {
            Account(account): until
            for account, until in self._connection.execute("SELECT account, until_epoch FROM ban")
        }
        self._suspensions = Suspensions(self._connection, lambda account: not self.is_newcomer(account))

    def record_good(self, account: Account, family: int, epoch: int) -> None:
        """Record that a group of the account passed verification."""
        self._add(account, family, Evidence(good=1.0, audits=1, epoch=epoch, passed=1))
        self._note(account, family, epoch, reason=None, severity=0.0)

    def record_fault(self, account: Account, family: int, epoch: int, reason: Reason) -> None:
        """Record that a group of the account failed an audit for a reason; hard evidence bans the account."""
        severity = CONSEQUENCES[reason].evidence
        if severity >= HARD:
            self._add(account, family, Evidence(bad=severity, audits=1, epoch=epoch))
            self._ban(account, epoch + BAN_EPOCHS)
            self._suspensions.recount(account)
            return
        held = 0.0 if self._suspensions.is_suspended(self._suspensions.moment(epoch), reason) else severity
        self._add(account, family, Evidence(bad=held, audits=1, epoch=epoch))
        self._note(account, family, epoch, reason=reason if severity > 0 else None, severity=severity)

    def suspended(self, epoch: int) -> tuple[Reason, ...]:
        """Return the checks whose penalties are suspended in an epoch, because most accounts failed them."""
        return self._suspensions.suspended(epoch)

    def record_equivocation(self, account: Account, family: int, epoch: int) -> bool:
        """Record a proven equivocation, once per account and epoch; return whether it was new."""
        with transaction(self._connection):  # a crash between the two would count it twice or never
            before = (epoch - 2 * BAN_EPOCHS,)  # no node admits proofs of these any more
            self._connection.execute("DELETE FROM conviction WHERE epoch < ?", before)
            claim = self._connection.execute(
                "INSERT OR IGNORE INTO conviction VALUES (?, ?)", (epoch, account)
            )
            if claim.rowcount:
                self.record_fault(account, family, epoch, Reason.EQUIVOCATION)
        return bool(claim.rowcount)

    def is_banned(self, account: Account, epoch: int) -> bool:
        """Whether hard evidence bans the account in an epoch; fast, since it is asked of all accounts."""
        return epoch < self._banned_until.get(account, epoch)

    def evidence(self, account: Account, epoch: int) -> Evidence:
        """Return an account's evidence over all families, as of an epoch."""
        if account not in self._totals:
            rows = self._connection.execute(
                "SELECT good, bad, audits, epoch, passed FROM evidence WHERE account = ?", (account,)
            ).fetchall()
            self._totals[account] = sum_evidence(*(Evidence(*row) for row in rows))
        return self._totals[account].at(epoch)

    def weigh(self, accounts: Iterable[Account], epoch: int) -> "AccountStanding":
        """Return the standing of the given accounts in an epoch; banned ones are left out."""
        weights: dict[Account, float] = {}
        newcomers: list[Account] = []
        for account in sorted(accounts):
            if self.is_banned(account, epoch):
                continue
            if self.is_newcomer(account) and not self._failed_too_often(account, epoch):
                newcomers.append(account)
            else:
                weights[account] = self.evidence(account, epoch).weight
        return AccountStanding(weights, tuple(newcomers))

    def is_newcomer(self, account: Account) -> bool:
        """Whether too few groups passed for a weight; fast, since it is called on every message."""
        return self._passed[account] < AUDITS_BEFORE_WEIGHT

    def when_known(self, callback: Callable[[Account], None]) -> None:
        """Call a function once with every account that stops being a newcomer, which is final."""
        self._became_known.append(callback)

    def passing_part(self, account: Account) -> float:
        """Return the part of the account's audited groups that passed, 0 to 1; 1 before its first audit.

        One passed group is added to the audited ones, so that the part is never 0.
        """
        return (1 + self._passed[account]) / (1 + self._audits[account])

    def _failed_too_often(self, account: Account, epoch: int) -> bool:
        """Whether the faults weigh as much as hard evidence; only from twenty audits on is the database
        read."""
        return self._audits[account] >= AUDITS_BEFORE_WEIGHT and self.evidence(account, epoch).bad >= HARD

    def _note(
        self, account: Account, family: int, epoch: int, reason: Reason | None, severity: float
    ) -> None:
        """Count the audit in the vote on suspensions, and apply the changes that follow from the vote."""
        now = self._suspensions.moment(epoch)
        weighed = severity * DECAY_PER_EPOCH ** (now - epoch)
        self._suspensions.note(account, family, now, reason=reason, severity=weighed)
        for failed in self._suspensions.failed():
            for change in self._suspensions.review(now, failed):
                self._add(change.account, change.family, Evidence(bad=change.severity, epoch=now))

    def _ban(self, account: Account, until_epoch: int) -> None:
        self._connection.execute(  # a ban is never shortened by a fault of an older epoch
            "INSERT INTO ban VALUES (?, ?) ON CONFLICT (account) DO UPDATE"
            " SET until_epoch = MAX(until_epoch, excluded.until_epoch)",
            (account, until_epoch),
        )
        self._banned_until[account] = max(until_epoch, self._banned_until.get(account, until_epoch))

    def _add(self, account: Account, family: int, news: Evidence) -> None:
        row = self._connection.execute(
            "SELECT good, bad, audits, epoch, passed FROM evidence WHERE account = ? AND family = ?",
            (account, family),
        ).fetchone()
        total = (Evidence(*row) if row else Evidence(epoch=news.epoch)).plus(news)
        kept = replace(total, bad=max(0.0, total.bad)).bounded()
        self._connection.execute(
            "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?, ?, ?, ?)",
            (account, family, kept.good, kept.bad, kept.audits, kept.epoch, kept.passed),
        )
        self._totals.pop(account, None)
        self._audits[account] += news.audits
        was_newcomer = self.is_newcomer(account)
        self._passed[account] += news.passed
        if was_newcomer and not self.is_newcomer(account):
            for callback in self._became_known:
                callback(account)


def sum_evidence(*pieces: Evidence) -> Evidence:
    """Return the sum of all pieces of evidence."""
    total = Evidence()
    for piece in pieces:
        total = total.plus(piece)
    return total
