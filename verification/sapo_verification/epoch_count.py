"""The pay count: what became of each admitted rollout, by epoch and account, in SQLite.

Payable is a rollout that came in time for its assigned slot, passed verification and is informative. Points
are linear in it and capped, so splitting an account gains nothing. The first outcome of a rollout is stored
in the transaction of the decision itself, so a restarted auditor's tally is that of one that never stopped;
a rollout without an outcome is audited again after a restart.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from sapo_protocol import merkle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.rules import Rule
from sapo_verification.observer import SilentObserver
from sapo_verification.store import Source, StoreSchema, open_database
from sapo_verification.types import AdmittedRollout, VerifiedRollout

_UNDECIDED: Final = frozenset({Rule.BEACON_KNOWN})
"""Refusals that say nothing about the rollout: it can still be verified later."""

_SCHEMA = StoreSchema(
    "epoch_count",
    """
    CREATE TABLE IF NOT EXISTS rollout_outcome (
        content_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, account BLOB NOT NULL,
        rule TEXT, payable INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS rollout_outcome_epoch ON rollout_outcome (epoch, account);
    """,
)


class EpochCount(SilentObserver):
    """One auditor's count; a rollout counts once however often it is verified."""

    def __init__(self, path: Source = ":memory:") -> None:
        self._connection = open_database(path, _SCHEMA)

    def verified(self, rollout: VerifiedRollout) -> None:
        """Count the rollout if it is payable."""
        self._record(rollout.admitted, rule=None, payable=rollout.is_informative)

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Record that the rollout is not payable, unless it can still be verified later."""
        if rule not in _UNDECIDED:
            self._record(admitted, rule=rule, payable=False)

    def leave_out(self, admitted: AdmittedRollout) -> None:
        """Record that this node never audits the rollout: another machine of the own account made it."""
        self._record(admitted, rule=None, payable=False)

    def is_decided(self, content_id: ContentId) -> bool:
        """Whether an outcome of the rollout is stored, also from before a restart."""
        query = "SELECT 1 FROM rollout_outcome WHERE content_id = ?"
        return self._connection.execute(query, (content_id,)).fetchone() is not None

    def points(
        self, epoch: int, live_accounts: Iterable[Account], points_per_epoch: int
    ) -> tuple[tuple[Account, int], ...]:
        """Return the points of every registered account that has any, ascending by account."""
        rows = self._connection.execute(
            "SELECT account, COUNT(*) FROM rollout_outcome WHERE epoch = ? AND payable GROUP BY account",
            (epoch,),
        )
        counted = {Account(account): count for account, count in rows}
        return capped_points(counted, live_accounts, points_per_epoch)

    def evidence_root(self, epoch: int) -> Digest:
        """Return the Merkle root over the ascending content ids behind the count."""
        query = "SELECT content_id FROM rollout_outcome WHERE epoch = ? AND payable ORDER BY content_id"
        return merkle.root([Digest(row[0]) for row in self._connection.execute(query, (epoch,))])

    def evidence(self, epoch: int, account: Account) -> frozenset[ContentId]:
        """Return the content ids that are counted for an account."""
        query = "SELECT content_id FROM rollout_outcome WHERE epoch = ? AND account = ? AND payable"
        return frozenset(ContentId(row[0]) for row in self._connection.execute(query, (epoch, account)))

    def forget(self, before_epoch: int) -> None:
        """Drop the outcomes of older epochs."""
        self._connection.execute("DELETE FROM rollout_outcome WHERE epoch < ?", (before_epoch,))

    def _record(self, admitted: AdmittedRollout, *, rule: Rule | None, payable: bool) -> None:
        self._connection.execute(
            "INSERT OR IGNORE INTO rollout_outcome VALUES (?, ?, ?, ?, ?)",
            (
                admitted.content_id,
                admitted.rollout.epoch,
                admitted.account,
                rule.number if rule else None,
                payable,
            ),
        )


def capped_points(
    payable: Mapping[Account, int], live_accounts: Iterable[Account], points_per_epoch: int
) -> tuple[tuple[Account, int], ...]:
    """Return a point per payable rollout of each registered account, capped; ascending by account."""
    return tuple(
        (account, min(points_per_epoch, payable[account]))
        for account in sorted(set(live_accounts) & set(payable))
    )
