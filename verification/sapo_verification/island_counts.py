"""Store of the numbers of islands, for a node that is started while the chain is away."""

from pathlib import Path
from typing import Final

from sapo_verification.store import Source, StoreSchema, open_database

_SCHEMA = StoreSchema(
    "island_counts",
    "CREATE TABLE IF NOT EXISTS island_count (epoch INTEGER PRIMARY KEY, count INTEGER NOT NULL);",
)

_KEPT: Final = 64
"""Epochs whose number is kept; messages of older ones are not accepted any more."""


class IslandCounts:
    """Numbers of islands by epoch in SQLite, read once; what is stored never changes."""

    def __init__(self, database: Source | Path) -> None:
        self._connection = open_database(database, _SCHEMA)
        rows = self._connection.execute("SELECT epoch, count FROM island_count").fetchall()
        self._counts: dict[int, int] = dict(rows)

    def learn(self, epoch: int, count: int) -> None:
        """Store the number of islands of an epoch, unless one is stored."""
        if epoch in self._counts:
            return
        self._counts[epoch] = count
        oldest = max(self._counts) - _KEPT
        self._counts = {one: known for one, known in self._counts.items() if one > oldest}
        self._connection.execute("INSERT OR IGNORE INTO island_count VALUES (?, ?)", (epoch, count))
        self._connection.execute("DELETE FROM island_count WHERE epoch <= ?", (oldest,))

    def of(self, epoch: int) -> int | None:
        """Return the number of islands of an epoch, or none if it is not stored."""
        return self._counts.get(epoch)

    def last_before(self, epoch: int) -> int | None:
        """Return that of the newest epoch below a number, or none if there is none."""
        newest = max((one for one in self._counts if one < epoch), default=None)
        return None if newest is None else self._counts[newest]
