"""SQLite as this package opens it: crash-safe, and quick enough to write on every message."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

OWN_CHECKPOINT_PAGES: Final = 16_384
"""Of 4 KiB: a writer copies its log into the file itself only where nobody else did for 64 MiB."""


def open_database(path: Path | str, schema: str) -> sqlite3.Connection:
    """A database in WAL mode with its tables made.

    Commits survive a killed process; ``synchronous=NORMAL`` may lose the newest ones to a power
    cut, never the file. What must survive even that sets ``synchronous=FULL`` itself.
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA busy_timeout=5000")
    connection.execute(f"PRAGMA wal_autocheckpoint={OWN_CHECKPOINT_PAGES}")
    connection.executescript(schema)
    return connection


def checkpoint(path: Path) -> int:
    """Pages of the log that are in the database file now; waits for the disk and holds up no writer."""
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(row[2])
