"""The first content of each slot, in SQLite.

Whoever can make a node forget a slot can use it again: the second content is then no equivocation, and is
paid as well. In memory only so many slots fit, and free accounts can send more rollouts than that in an
epoch. On disk a slot takes about 75 bytes, a small part of the rollout's other rows.
"""

from typing import Final

from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.store import Source, StoreSchema, open_database

_SCHEMA: Final = StoreSchema(
    "taken_slots",
    """
    CREATE TABLE IF NOT EXISTS taken_slot (
        epoch INTEGER NOT NULL, account BLOB NOT NULL, slot INTEGER NOT NULL, content_id BLOB NOT NULL,
        PRIMARY KEY (epoch, account, slot)
    ) WITHOUT ROWID;
    """,
)


class TakenSlots:
    """First contents by epoch, account and slot; they outlive a restart, and the rollouts themselves."""

    def __init__(self, path: Source = ":memory:") -> None:
        self._connection = open_database(path, _SCHEMA)

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT COUNT(*) FROM taken_slot").fetchone()[0])

    def take(self, epoch: int, account: Account, slot: int, content_id: ContentId) -> ContentId:
        """Return the first content of a slot: the given one if the slot was free, and it is taken now."""
        place = (epoch, account, slot)
        query = "SELECT content_id FROM taken_slot WHERE epoch = ? AND account = ? AND slot = ?"
        row = self._connection.execute(query, place).fetchone()
        if row is not None:
            return ContentId(row[0])
        self._connection.execute("INSERT INTO taken_slot VALUES (?, ?, ?, ?)", (*place, content_id))
        return content_id

    def forget(self, before_epoch: int) -> None:
        """Free the slots of earlier epochs."""
        self._connection.execute("DELETE FROM taken_slot WHERE epoch < ?", (before_epoch,))
