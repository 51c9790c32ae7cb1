"""SQLite as this package opens it: crash-safe, and quick enough to write on every message."""

import sqlite3
from pathlib import Path


def open_database(path: Path | str, schema: str) -> sqlite3.Connection:
    """A database in WAL mode with its tables made.

    Commits survive a killed process; ``synchronous=NORMAL`` may lose the newest ones to a power
    cut, never the file. What must survive even that sets ``synchronous=FULL`` itself.
    """
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA busy_timeout=5000")
    connection.executescript(schema)
    return connection
