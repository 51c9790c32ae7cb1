"""SQLite as this package opens it: crash-safe, and quick enough to write on every message."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

Source = Path | str | sqlite3.Connection
"""Where a store keeps its tables: a file, ":memory:", or a connection that it shares with other stores."""

OWN_CHECKPOINT_PAGES: Final = 16_384
"""Of 4 KiB: a writer copies its log into the file itself only where nobody else did for 64 MiB."""


def open_database(source: Source, schema: str) -> sqlite3.Connection:
    """Open a database in WAL mode and create its tables; a connection that is given is used as it is.

    Commits survive a killed process; ``synchronous=NORMAL`` may lose the newest ones to a power
    cut, never the file. What must survive even that sets ``synchronous=FULL`` itself.
    """
    if isinstance(source, sqlite3.Connection):
        source.executescript(schema)
        return source
    connection = sqlite3.connect(source, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA busy_timeout=5000")
    connection.execute(f"PRAGMA wal_autocheckpoint={OWN_CHECKPOINT_PAGES}")
    connection.executescript(schema)
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Store all that the block writes or nothing of it; inside another transaction it is part of that one."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


def checkpoint(path: Path) -> int:
    """Pages of the log that are in the database file now; waits for the disk and holds up no writer."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(row[2])
