"""Store of recently admitted envelopes, as received: ``sapo verify`` and exports read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.admission.storage_budget import STEP, Retention, StorageBudget
from sapo_verification.store import Source, StoreSchema, open_database, transaction
from sapo_verification.types import AdmittedRollout

KEPT_EPOCHS: Final = 16
"""Any dispute about an epoch is over by then."""

_LARGEST_INTEGER: Final = 2**63 - 1  # of SQLite

_SCHEMA = StoreSchema(
    "envelopes",
    """
    CREATE TABLE IF NOT EXISTS heard (
        content_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, account BLOB NOT NULL, envelope BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS heard_epoch ON heard (epoch);
    """,
    "CREATE INDEX heard_account ON heard (epoch, account);",
    STEP,
)


class EnvelopeStore:
    """Admitted envelopes of the last epochs, own ones included, in SQLite.

    Args:
        retention: limits what is kept; None keeps everything, as for a reader.
    """

    def __init__(self, path: Source, retention: Retention | None = None) -> None:
        self._connection = open_database(path, _SCHEMA)
        self._retention = retention
        self.budget: Final = StorageBudget(self._connection, retention)

    def add(self, admitted: AdmittedRollout, message: bytes) -> None:
        """Store a rollout's message as received; drop others if the storage budget is exceeded."""
        epoch, account = admitted.rollout.epoch, admitted.account
        with transaction(self._connection):
            row = (admitted.content_id, epoch, account, message)
            if self._connection.execute("INSERT OR IGNORE INTO heard VALUES (?, ?, ?, ?)", row).rowcount:
                self.budget.add(epoch, account, len(message))

    def forget(self, epoch: int) -> None:
        """Delete the envelopes that are ``KEPT_EPOCHS`` or more older than an epoch."""
        with transaction(self._connection):
            self._connection.execute("DELETE FROM heard WHERE epoch <= ?", (epoch - KEPT_EPOCHS,))
            self.budget.forget(epoch - KEPT_EPOCHS)

    def has(self, content_id: ContentId) -> bool:
        """Whether a rollout is stored, also from before a restart."""
        row = self._connection.execute("SELECT 1 FROM heard WHERE content_id = ?", (content_id,))
        return row.fetchone() is not None

    def envelope(self, content_id: ContentId) -> bytes | None:
        """Return the envelope of a content id, or None if it is not stored."""
        row = self._connection.execute("SELECT envelope FROM heard WHERE content_id = ?", (content_id,))
        found = row.fetchone()
        return bytes(found[0]) if found else None

    def knows(self, content_id: ContentId) -> bool:
        """Whether a rollout is stored, or was dropped after it was decided."""
        if self.has(content_id):
            return True
        kept = self._retention
        return kept is not None and self.budget.has_dropped and kept.count.is_decided(content_id)

    def lacking(self, ids: Iterable[ContentId]) -> tuple[ContentId, ...]:
        """Return those of the rollouts that are not known (see ``knows``), in the given order."""
        return tuple(content_id for content_id in ids if not self.knows(content_id))

    def listed(
        self, epoch: int, after: ContentId | None, limit: int
    ) -> tuple[tuple[ContentId, Account], ...]:
        """Return ``limit`` content ids of an epoch at most, above ``after``, with accounts, ascending."""
        if epoch > _LARGEST_INTEGER:
            return ()
        rows = self._connection.execute(
            "SELECT content_id, account FROM heard WHERE epoch = ? AND content_id > ?"
            " ORDER BY content_id LIMIT ?",
            (epoch, bytes(after or b""), limit),
        )
        return tuple((ContentId(content_id), Account(account)) for content_id, account in rows)

    def since(self, epoch: int) -> Iterator[bytes]:
        """Yield the envelopes of an epoch and later ones, oldest epoch first; one at a time is in memory."""
        rows = self._connection.execute(
            "SELECT envelope FROM heard WHERE epoch >= ? ORDER BY epoch, content_id", (epoch,)
        )
        return (bytes(row[0]) for row in rows)

    def of(self, account: Account, epoch: int) -> tuple[bytes, ...]:
        """Return the envelopes of an account in an epoch, in no order."""
        rows = self._connection.execute(
            "SELECT envelope FROM heard WHERE epoch = ? AND account = ?", (epoch, account)
        )
        return tuple(bytes(row[0]) for row in rows)

    def count_of(self, account: Account, epoch: int) -> int:
        """Return how many envelopes of an account in an epoch are stored."""
        query = "SELECT COUNT(*) FROM heard WHERE epoch = ? AND account = ?"
        return int(self._connection.execute(query, (epoch, account)).fetchone()[0])

    def latest(self, count: int) -> Iterator[tuple[ContentId, bytes]]:
        """Return the newest envelopes with their content ids, newest epoch first."""
        rows = self._connection.execute(
            "SELECT content_id, envelope FROM heard ORDER BY epoch DESC, content_id LIMIT ?", (count,)
        )
        return ((ContentId(content_id), bytes(envelope)) for content_id, envelope in rows)
