"""The chain's one SQLite file: py-evm's key/value pairs, and an index of transactions and logs."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth.db.backends.base import BaseDB

from sapo_verification.store import SQLITE_CHECKPOINT_PAGES, StoreSchema, open_database

Json = dict[str, Any]

_SCHEMA = StoreSchema(
    "chain",
    """
    CREATE TABLE IF NOT EXISTS pairs (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS transactions (
        hash BLOB PRIMARY KEY, block INTEGER NOT NULL, body TEXT NOT NULL, receipt TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS transactions_by_block ON transactions (block);
    CREATE TABLE IF NOT EXISTS logs (
        id INTEGER PRIMARY KEY, block INTEGER NOT NULL, address TEXT NOT NULL, body TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS logs_by_block ON logs (block);
    CREATE INDEX IF NOT EXISTS logs_by_address ON logs (address, block);
    """,
)


class KeyValueDatabase(BaseDB):  # type: ignore[misc]  # py-evm is outside our types
    """Key/value pairs as py-evm wants them; writes stay in memory until the block is committed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pending: dict[bytes, bytes | None] = {}

    def __getitem__(self, key: bytes) -> bytes:
        value = self._pending[key] if key in self._pending else self._stored(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._pending[key] = value

    def __delitem__(self, key: bytes) -> None:
        if key not in self:
            raise KeyError(key)
        self._pending[key] = None

    def _exists(self, key: bytes) -> bool:
        if key in self._pending:
            return self._pending[key] is not None
        return self._stored(key) is not None

    def _stored(self, key: bytes) -> bytes | None:
        row = self._connection.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def discard(self) -> None:
        """Forget what was not flushed."""
        self._pending.clear()

    def flush(self) -> None:
        """Hand the pending writes to the open SQL transaction."""
        kept = [(key, value) for key, value in self._pending.items() if value is not None]
        gone = [(key,) for key, value in self._pending.items() if value is None]
        self._connection.executemany("INSERT OR REPLACE INTO pairs VALUES (?, ?)", kept)
        self._connection.executemany("DELETE FROM pairs WHERE key = ?", gone)
        self._pending.clear()


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One transaction as JSON-RPC shows it."""

    transaction_hash: bytes
    block: int
    body: Json
    receipt: Json


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which logs are asked for; ``topics`` holds, per position, the allowed values, or none for any."""

    first_block: int
    last_block: int
    addresses: tuple[str, ...] = ()
    topics: tuple[tuple[str, ...], ...] = field(default=())

    def matches(self, log: Mapping[str, Any]) -> bool:
        """Whether a log's topics are among the asked ones."""
        given: Sequence[str] = log["topics"]
        if len(given) < len(self.topics):
            return False
        return all(
            not allowed or topic in allowed for topic, allowed in zip(given, self.topics, strict=False)
        )


class ChainStore:
    """The open file. Its user serialises the calls; SQLite's own lock is not relied on."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path, _SCHEMA, checkpoint_pages=SQLITE_CHECKPOINT_PAGES)
        # A block is acknowledged once it would survive a power cut, not only a kill.
        self._connection.execute("PRAGMA synchronous = FULL")
        self.pairs = KeyValueDatabase(self._connection)

    def close(self) -> None:
        """Close the file; what was not committed is lost."""
        self._connection.close()

    def commit(self, entry: IndexEntry | None = None) -> None:
        """Write the pending pairs and one transaction's index entry, all or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self.pairs.flush()
            if entry is not None:
                self._index(entry)
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _index(self, entry: IndexEntry) -> None:
        row = (entry.transaction_hash, entry.block, json.dumps(entry.body), json.dumps(entry.receipt))
        self._connection.execute("INSERT INTO transactions VALUES (?, ?, ?, ?)", row)
        logs = [(entry.block, log["address"], json.dumps(log)) for log in entry.receipt["logs"]]
        self._connection.executemany("INSERT INTO logs (block, address, body) VALUES (?, ?, ?)", logs)

    def transaction(self, transaction_hash: bytes) -> Json | None:
        """A mined transaction."""
        return self._one("SELECT body FROM transactions WHERE hash = ?", transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Json | None:
        """A mined transaction's receipt."""
        return self._one("SELECT receipt FROM transactions WHERE hash = ?", transaction_hash)

    def transactions_in(self, block: int) -> list[Json]:
        """The transactions of one block."""
        rows = self._connection.execute("SELECT body FROM transactions WHERE block = ?", (block,))
        return [json.loads(body) for (body,) in rows]

    def logs(self, wanted: LogFilter) -> list[Json]:
        """The logs that match, oldest first."""
        logs = (json.loads(body) for (body,) in self._log_rows(wanted))
        return [log for log in logs if wanted.matches(log)]

    def _log_rows(self, wanted: LogFilter) -> Iterable[tuple[str]]:
        span = (wanted.first_block, wanted.last_block)
        if not wanted.addresses:
            return self._connection.execute(
                "SELECT body FROM logs WHERE block BETWEEN ? AND ? ORDER BY id", span
            )
        marks = ", ".join("?" * len(wanted.addresses))
        query = f"SELECT body FROM logs WHERE block BETWEEN ? AND ? AND address IN ({marks}) ORDER BY id"  # noqa: S608  # only question marks
        return self._connection.execute(query, (*span, *wanted.addresses))

    def _one(self, query: str, key: bytes) -> Json | None:
        row = self._connection.execute(query, (key,)).fetchone()
        return None if row is None else json.loads(row[0])
