"""The disk space of stored rollouts, and the order in which they are dropped when it is full.

Payment depends on the newest epochs: peers that missed a counted (paid) rollout and auditors that draw it ask
for it, and a rollout that is not decided yet is audited after a restart. So the order is:

1. rollouts of newcomers that are not counted;
2. rollouts of known accounts that are not counted;
3. counted rollouts.

If the space of all epochs is full, classes 2 and 3 are dropped from the oldest epoch first. Within a class
the account with most bytes loses some, those that are decided first. The own account loses none.

The sums are kept in the database beside the rollouts, so that they are part of the same transactions, and a
start need not read the rollouts.
"""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.epoch_count import EpochCount
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.store import KEPT_BYTES, transaction

EPOCHS_OF_ROOM: Final = 4
"""One epoch may take a quarter of the space. Payment depends on four epochs: the present one, the one before,
whose rollouts are still accepted, and the two whose commitments are kept. By default a quarter holds the
rollouts of 455 accounts; gossip carries those of about 290 in ten minutes.
"""

ROW_BYTES: Final = 512
"""Bytes on disk of a rollout's row, its message excluded unless it is stored within the row."""

PAGE_BYTES: Final = 4096
"""Page size of SQLite; a message that is not stored within its row takes whole pages."""

INLINE_BYTES: Final = 900
"""Messages up to this size are stored within their row."""

MAX_LOOKED_AT: Final = 2048
"""Rollouts examined for each added one: a database that holds far too much shrinks step by step."""

PART_DROPPED: Final = 16
"""Part of the droppable bytes of an account dropped at once: a pass over its rollouts takes milliseconds."""

STORED_SIZE: Final = (
    f"{ROW_BYTES} + CASE WHEN length(envelope) <= {INLINE_BYTES} THEN length(envelope)"
    f" ELSE (length(envelope) + {PAGE_BYTES - 1}) / {PAGE_BYTES} * {PAGE_BYTES} END"
)
"""SQL: bytes on disk of a row of ``heard``. The stored sums use it; a change needs a step of the schema."""

STEP: Final = f"""
    CREATE TABLE held (
        epoch INTEGER NOT NULL, account BLOB NOT NULL, known INTEGER NOT NULL,
        bytes INTEGER NOT NULL, uncounted INTEGER NOT NULL, PRIMARY KEY (epoch, account)
    ) WITHOUT ROWID;
    CREATE INDEX held_uncounted ON held (known, epoch, uncounted DESC) WHERE uncounted > 0;
    CREATE TABLE held_epoch (epoch INTEGER PRIMARY KEY, bytes INTEGER NOT NULL, dropped INTEGER NOT NULL);
    INSERT INTO held SELECT epoch, account, 0, SUM({STORED_SIZE}), SUM({STORED_SIZE}) FROM heard
        GROUP BY epoch, account;
    INSERT INTO held_epoch SELECT epoch, SUM(bytes), 0 FROM held GROUP BY epoch;
"""  # noqa: S608 - constants of this module
"""Step of the schema of ``EnvelopeStore``."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The inputs of the decision which rollouts are kept.

    Attributes:
        own: the account that loses nothing.
        reputation: determines which accounts are newcomers.
        count: determines which rollouts are decided, and which of them are paid; on the same connection.
        max_bytes: limit on disk, for all epochs together.
    """

    own: Account
    reputation: Reputation
    count: EpochCount
    max_bytes: int = KEPT_BYTES


class _Holder(NamedTuple):
    """Bytes on disk of an account's rollouts in an epoch.

    ``uncounted`` may be too large, and ``known`` out of date; both are corrected when the account is
    selected.
    """

    epoch: int
    account: Account
    is_known: bool
    size: int
    uncounted: int


class StorageBudget:
    """Sums of the stored bytes, and the order in which rollouts are dropped.

    Attributes:
        has_dropped: whether a rollout was dropped that peers could still send again.
    """

    def __init__(self, connection: sqlite3.Connection, retention: Retention | None) -> None:
        self._connection = connection
        self._retention = retention
        self.has_dropped = self.dropped(0) > 0

    def add(self, epoch: int, account: Account, message_bytes: int) -> None:
        """Add a stored rollout to the sums; drop rollouts, possibly this one, until the budget is met."""
        size = stored_size(message_bytes)
        is_known = self._retention is not None and not self._retention.reputation.is_newcomer(account)
        self._connection.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?) ON CONFLICT (epoch, account) DO UPDATE SET"
            " known = excluded.known, bytes = bytes + excluded.bytes,"
            " uncounted = uncounted + excluded.uncounted",
            (epoch, account, is_known, size, size),
        )
        self._connection.execute(
            "INSERT INTO held_epoch VALUES (?, ?, 0) ON CONFLICT (epoch) DO UPDATE SET"
            " bytes = bytes + excluded.bytes",
            (epoch, size),
        )
        if self._retention is not None:
            self._make_room(epoch, self._retention)

    def forget(self, epoch: int) -> None:
        """Drop the sums of an epoch and earlier ones."""
        with transaction(self._connection):
            self._connection.execute("DELETE FROM held WHERE epoch <= ?", (epoch,))
            self._connection.execute("DELETE FROM held_epoch WHERE epoch <= ?", (epoch,))

    def size(self, epoch: int | None = None) -> int:
        """Return the bytes on disk of an epoch's rollouts, or of all."""
        query = "SELECT COALESCE(SUM(bytes), 0) FROM held_epoch WHERE ?1 IS NULL OR epoch = ?1"
        return int(self._connection.execute(query, (epoch,)).fetchone()[0])

    def dropped(self, first_epoch: int) -> int:
        """Return how many rollouts of an epoch and later ones were dropped because the space was full."""
        query = "SELECT COALESCE(SUM(dropped), 0) FROM held_epoch WHERE epoch >= ?"
        return int(self._connection.execute(query, (first_epoch,)).fetchone()[0])

    def _make_room(self, epoch: int, retention: Retention) -> None:
        looked_at = 0
        while looked_at < MAX_LOOKED_AT:
            if self.size(epoch) > retention.max_bytes // EPOCHS_OF_ROOM:
                holder = self._next(epoch, epoch, retention.own)
            elif self.size() > retention.max_bytes:
                holder = self._next(0, None, retention.own)
            else:
                return
            if holder is None:  # the rest is the own account's
                return
            looked_at += self._relieve(holder, retention)

    def _next(self, first: int, last: int | None, own: Account) -> _Holder | None:
        """Return the account that loses rollouts next, in the epochs from ``first`` on, to ``last`` if
        given."""
        if (newcomer := self._uncounted(first, last, own, known=False)) is not None:
            return newcomer
        oldest = self._connection.execute(
            "SELECT epoch FROM held WHERE epoch >= ? AND account != ? ORDER BY epoch LIMIT 1", (first, own)
        ).fetchone()
        if oldest is None:
            return None
        return self._uncounted(oldest[0], oldest[0], own, known=True) or self._largest(oldest[0], own)

    def _uncounted(self, first: int, last: int | None, own: Account, *, known: bool) -> _Holder | None:
        """Return the account with most uncounted bytes in the first epoch in which such accounts have any."""
        row = self._connection.execute(
            "SELECT epoch, account, known, bytes, uncounted FROM held WHERE known = ? AND uncounted > 0"
            " AND epoch >= ? AND epoch <= COALESCE(?, epoch) AND account != ?"
            " ORDER BY epoch, uncounted DESC LIMIT 1",
            (known, first, last, own),
        ).fetchone()
        return None if row is None else _holder(*row)

    def _largest(self, epoch: int, own: Account) -> _Holder | None:
        row = self._connection.execute(
            "SELECT epoch, account, known, bytes, uncounted FROM held WHERE epoch = ? AND account != ?"
            " ORDER BY known, bytes DESC LIMIT 1",
            (epoch, own),
        ).fetchone()
        return None if row is None else _holder(*row)

    def _relieve(self, holder: _Holder, retention: Retention) -> int:
        """Drop some rollouts of an account, or correct its sums; return how many rollouts were read."""
        epoch, account = holder.epoch, holder.account
        if not holder.is_known and not retention.reputation.is_newcomer(account):
            self._correct(holder, known=True, uncounted=holder.uncounted)
            return 1
        query = "SELECT content_id FROM heard WHERE epoch = ? AND account = ?"  # an index holds all of it
        ids = {ContentId(row[0]) for row in self._connection.execute(query, (epoch, account))}
        counted = ids & retention.count.evidence(epoch, account)
        uncounted = holder.size - self._sizes(counted)
        if uncounted != holder.uncounted:  # some were counted since
            self._correct(holder, known=holder.is_known, uncounted=uncounted)
            return 1 + len(ids)
        may_go = (ids - counted) or counted
        decided = retention.count.decided(epoch, account)
        order = sorted(may_go, key=lambda id_: (id_ not in decided, id_))
        self._drop(holder, order[: max(1, len(order) // PART_DROPPED)], were_counted=may_go is counted)
        return 1 + len(ids)

    def _correct(self, holder: _Holder, *, known: bool, uncounted: int) -> None:
        self._connection.execute(
            "UPDATE held SET known = ?, uncounted = ? WHERE epoch = ? AND account = ?",
            (known, uncounted, holder.epoch, holder.account),
        )

    def _sizes(self, ids: Collection[ContentId]) -> int:
        """Return the bytes on disk of some rollouts."""
        query = f"SELECT {STORED_SIZE} FROM heard WHERE content_id = ?"  # noqa: S608 - ours
        return sum(int(self._connection.execute(query, (id_,)).fetchone()[0]) for id_ in ids)

    def _drop(self, holder: _Holder, ids: Collection[ContentId], *, were_counted: bool) -> None:
        self.has_dropped = True
        key, size = (holder.epoch, holder.account), self._sizes(ids)
        self._connection.executemany("DELETE FROM heard WHERE content_id = ?", [(id_,) for id_ in ids])
        self._connection.execute(
            "UPDATE held SET bytes = bytes - ?, uncounted = uncounted - ? WHERE epoch = ? AND account = ?",
            (size, 0 if were_counted else size, *key),
        )
        self._connection.execute("DELETE FROM held WHERE epoch = ? AND account = ? AND bytes = 0", key)
        self._connection.execute(
            "UPDATE held_epoch SET bytes = bytes - ?, dropped = dropped + ? WHERE epoch = ?",
            (size, len(ids), holder.epoch),
        )


def stored_size(message_bytes: int) -> int:
    """Return the bytes on disk of a message's row, computed as in ``STORED_SIZE``."""
    if message_bytes <= INLINE_BYTES:
        return ROW_BYTES + message_bytes
    return ROW_BYTES + (message_bytes + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES


def _holder(epoch: int, account: bytes, known: int, size: int, uncounted: int) -> _Holder:
    return _Holder(epoch, Account(account), bool(known), size, uncounted)
