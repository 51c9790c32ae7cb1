"""The pay count: the outcome of each admitted rollout, by epoch and account, in SQLite.

A rollout is payable if it came in time for its assigned slot, passed verification and is informative. Points
are linear in the number of payable rollouts and capped, so splitting an account gains nothing. In a swarm
with ladders a group is paid for a right answer, by the value of its level
(``sapo_protocol.terms.difficulty``), and the outcomes of the groups of each family are counted as well. The
first outcome of a rollout is stored in the transaction of its decision, so an auditor's tally is the same
with and without a restart; a rollout without an outcome is audited again after a restart.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from sapo_protocol import merkle
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.rules import Rule
from sapo_protocol.terms.difficulty import (
    Difficulty,
    GroupOutcome,
    Outcomes,
    Record,
    middle_outcomes,
    points_of,
)
from sapo_protocol.terms.gate import points_cap
from sapo_verification.observer import Observer
from sapo_verification.store import Source, StoreSchema, open_database
from sapo_verification.types import AdmittedRollout, VerifiedRollout

_UNDECIDED: Final = frozenset({Rule.BEACON_KNOWN, Rule.NODE_HAD_TIME})
"""Refusals that decide nothing about the rollout: it can still be verified later."""

_SCHEMA = StoreSchema(
    "epoch_count",
    """
    CREATE TABLE IF NOT EXISTS rollout_outcome (
        content_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, account BLOB NOT NULL,
        rule TEXT, payable INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS rollout_outcome_epoch ON rollout_outcome (epoch, account);
    """,
    """
    CREATE TABLE counted_group (
        content_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, account BLOB NOT NULL, family INTEGER NOT NULL,
        slot INTEGER NOT NULL, right INTEGER NOT NULL, wrong INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX counted_group_epoch ON counted_group (epoch, account, family, slot);
    """,
)


class EpochCount(Observer):
    """One auditor's count; a rollout counts once however often it is verified.

    Args:
        difficulty: the manifest's, if it has ladders.
    """

    def __init__(self, path: Source = ":memory:", difficulty: Difficulty | None = None) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._difficulty = difficulty

    def verified(self, rollout: VerifiedRollout) -> None:
        """Count the rollout if it is payable, and in a swarm with ladders the outcome of its group."""
        self._record(rollout.admitted, rule=None, payable=rollout.is_informative)
        if self._difficulty and len(rollout.rewards) >= self._difficulty.completions:
            self._record_group(rollout)

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

    def decided(self, epoch: int, account: Account) -> frozenset[ContentId]:
        """Return the rollouts of an account in an epoch of which an outcome is stored."""
        query = "SELECT content_id FROM rollout_outcome WHERE epoch = ? AND account = ?"
        rows = self._connection.execute(query, (epoch, account))
        return frozenset(ContentId(row[0]) for row in rows)

    def is_payable(self, content_id: ContentId) -> bool | None:
        """Whether the rollout is payable, for audits by sample; None while no outcome is stored."""
        query = "SELECT payable FROM rollout_outcome WHERE content_id = ?"
        row = self._connection.execute(query, (content_id,)).fetchone()
        return None if row is None else bool(row[0])

    def points(
        self,
        epoch: int,
        live_accounts: Iterable[Account],
        points_per_epoch: int,
        units: Mapping[Account, Fraction] | None = None,
    ) -> tuple[tuple[Account, int], ...]:
        """Return the points of the registered accounts that have any, ascending by account.

        Args:
            units: as in ``capped_points``.
        """
        rows = self._connection.execute(
            "SELECT account, COUNT(*) FROM rollout_outcome WHERE epoch = ? AND payable GROUP BY account",
            (epoch,),
        )
        counted = {Account(account): count for account, count in rows}
        return capped_points(counted, live_accounts, points_per_epoch, units)

    def points_by_level(
        self,
        epoch: int,
        live_accounts: Iterable[Account],
        points_per_epoch: int,
        record: Record,
        units: Mapping[Account, Fraction] | None = None,
    ) -> tuple[tuple[Account, int], ...]:
        """Return what ``points`` does, in a swarm with ladders.

        Args:
            record: that in force in the epoch.
        """
        groups: defaultdict[Account, Counter[int]] = defaultdict(Counter)
        query = "SELECT account, family FROM counted_group WHERE epoch = ? AND right"
        for account, family in self._connection.execute(query, (epoch,)):
            groups[Account(account)][family] += 1
        worth = {account: points_of(counts, record) for account, counts in groups.items()}
        counted = {account: points for account, points in worth.items() if points}
        return capped_points(counted, live_accounts, points_per_epoch, units)

    def outcomes(
        self,
        epoch: int,
        live_accounts: Iterable[Account],
        families: int,
        units: Mapping[Account, Fraction] | None = None,
    ) -> tuple[Outcomes, ...]:
        """Return the outcomes of the middle third of the registered accounts' groups, a row per family.

        Of one account and family the groups of the lowest slots are taken: ``Difficulty.groups`` of them,
        times the account's units (rounded down).

        Returns:
            () without ladders.
        """
        if self._difficulty is None:
            return ()
        max_groups = self._difficulty.groups
        room = {
            account: max_groups if units is None else int(max_groups * units.get(account, 0))
            for account in live_accounts
        }
        found: list[dict[bytes, list[GroupOutcome]]] = [{} for _ in range(families)]
        query = "SELECT account, family, right, wrong FROM counted_group WHERE epoch = ? ORDER BY slot"
        for account, family, right, wrong in self._connection.execute(query, (epoch,)):
            if len(found[family].get(account, ())) < room.get(Account(account), 0):
                found[family].setdefault(account, []).append(GroupOutcome.of(right, wrong))
        return tuple(middle_outcomes(accounts) for accounts in found)

    def evidence_root(self, epoch: int) -> Digest:
        """Return the Merkle root over the ascending content ids behind the count."""
        query = f"SELECT content_id FROM {self._paid} AND epoch = ? ORDER BY content_id"  # noqa: S608 - ours
        return merkle.root([Digest(row[0]) for row in self._connection.execute(query, (epoch,))])

    def evidence(self, epoch: int, account: Account) -> frozenset[ContentId]:
        """Return the content ids that are counted for an account."""
        query = f"SELECT content_id FROM {self._paid} AND epoch = ? AND account = ?"  # noqa: S608 - ours
        return frozenset(ContentId(row[0]) for row in self._connection.execute(query, (epoch, account)))

    def forget(self, before_epoch: int) -> None:
        """Drop the outcomes of older epochs."""
        self._connection.execute("DELETE FROM rollout_outcome WHERE epoch < ?", (before_epoch,))
        self._connection.execute("DELETE FROM counted_group WHERE epoch < ?", (before_epoch,))

    @property
    def _paid(self) -> str:
        """SQL: table and condition of the paid groups."""
        return "counted_group WHERE right" if self._difficulty else "rollout_outcome WHERE payable"

    def _record_group(self, rollout: VerifiedRollout) -> None:
        """Record the outcome of a group, unless it was refused for anything else than equal rewards."""
        query = "SELECT payable OR rule = ? FROM rollout_outcome WHERE content_id = ?"
        counts = self._connection.execute(query, (Rule.SIGNAL.number, rollout.content_id)).fetchone()
        if not counts[0]:
            return
        right = sum(reward > 0 for reward in rollout.rewards)
        self._connection.execute(
            "INSERT OR IGNORE INTO counted_group VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                rollout.content_id,
                rollout.admitted.rollout.epoch,
                rollout.account,
                rollout.admitted.rollout.family,
                rollout.admitted.rollout.slot,
                right,
                len(rollout.rewards) - right,
            ),
        )

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
    payable: Mapping[Account, int],
    live_accounts: Iterable[Account],
    points_per_epoch: int,
    units: Mapping[Account, Fraction] | None = None,
) -> tuple[tuple[Account, int], ...]:
    """Return a point per payable rollout of each registered account, capped; ascending by account.

    Args:
        units: each account's part of a whole account by the swarm's gate, 0 to 1; an account that is missing
            has no points. None if every account counts in full.
    """
    counted = sorted(set(live_accounts) & set(payable))
    if units is None:
        return tuple((account, min(points_per_epoch, payable[account])) for account in counted)
    caps = {account: points_cap(points_per_epoch, units.get(account, Fraction(0))) for account in counted}
    return tuple((account, min(caps[account], payable[account])) for account in counted if caps[account])
