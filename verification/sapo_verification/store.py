"""SQLite databases: crash-safe, fast enough for a write per message, with schema versions.

Several stores share one file. Each is a component with a schema version of its own, kept in the table
``schema_version``. Opening brings the tables of a component from the version found up to the current one.
A file without versions counts as version 0: step 1 creates only the tables that are missing.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import sleep
from typing import ClassVar, Final

from sapo_verification.errors import NewerDatabaseError, UnusableDatabaseError

Source = Path | str | sqlite3.Connection
"""Where a store keeps its tables: a file, ":memory:", or a connection that it shares with other stores."""

OWN_CHECKPOINT_PAGES: Final = 16_384
"""Pages of 4 KiB: a writer itself checkpoints the log only at 64 MiB; normally ``checkpoint`` does it
earlier."""

MAX_LOG_BYTES: Final = 8 * 2**20
"""Size to which the log is truncated after a complete checkpoint; else it would keep its largest size."""

KEPT_BYTES: Final = 8 * 2**30
"""Disk space for rollouts by default: sixteen epochs of 113 accounts with 1,024 groups of 4 kB (4.6 kB on
disk)."""

SQLITE_CHECKPOINT_PAGES: Final = 1000
"""SQLite's default, for a file on which ``checkpoint`` is not called."""

WAL_ATTEMPTS: Final = 250
WAL_PAUSE: Final = 0.02
"""Seconds between attempts to set the journal mode: 5 s in all, like SQLite's time-out for other locks."""

_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (component TEXT PRIMARY KEY, version INTEGER NOT NULL)"


class StoreSchema:
    """The schema of one component, as its migration steps.

    Args:
        component: a name that no other component of the same file has.
        steps: SQL scripts; step N leads from version N - 1 to version N. A released step never changes. The
            first one uses ``IF NOT EXISTS``, since version 0.1.0 created its tables without a version.
    """

    known: ClassVar[dict[str, int]] = {}
    """The newest version of every component whose module is imported."""

    def __init__(self, component: str, *steps: str) -> None:
        self.component = component
        self.steps = steps
        self.known[component] = len(steps)

    @property
    def version(self) -> int:
        """The version that this code reads and writes."""
        return len(self.steps)


def open_database(
    source: Source, *schemas: StoreSchema, checkpoint_pages: int = OWN_CHECKPOINT_PAGES
) -> sqlite3.Connection:
    """Open a database in WAL mode, or share a connection; bring the tables to the current version.

    Commits survive a killed process. With ``synchronous=NORMAL`` a power failure may lose the newest commits,
    but not the file; a caller that needs more sets ``synchronous=FULL``.

    Raises:
        NewerDatabaseError: a newer version of this package has changed the tables.
        UnusableDatabaseError: the file is damaged or cannot be opened.
    """
    if isinstance(source, sqlite3.Connection):
        migrate(source, _file_of(source), *schemas)
        return source
    connection = _open(source)
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA busy_timeout=5000")
    connection.execute(f"PRAGMA wal_autocheckpoint={checkpoint_pages}")
    connection.execute(f"PRAGMA journal_size_limit={MAX_LOG_BYTES}")
    try:
        migrate(connection, str(source), *schemas)
    except NewerDatabaseError:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction, or as a part of the one that is open already."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


def open_for_reading(path: Path, schema: StoreSchema) -> sqlite3.Connection:
    """Open an existing database read-only; a file without versions is read as version 1.

    Raises:
        NewerDatabaseError: a newer version of this package has changed the tables.
        sqlite3.OperationalError: there is no such file, or no such table in it.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        _version(connection, path, schema)
    except NewerDatabaseError:
        connection.close()
        raise
    return connection


def require_known(connection: sqlite3.Connection, path: Path) -> None:
    """Raise if a newer version of this package has changed tables of an imported component.

    Raises:
        NewerDatabaseError: it has.
        sqlite3.DatabaseError: the file is damaged.
    """
    for component, version in StoreSchema.known.items():
        _require_known(_recorded(connection, component), path, component, version)


def migrate(connection: sqlite3.Connection, path: Path | str, *schemas: StoreSchema) -> None:
    """Run all missing migration steps in one transaction; a file that is up to date is not locked.

    Raises:
        NewerDatabaseError: a newer version of this package has changed the tables; nothing was done.
    """
    if all(_version(connection, path, schema) == schema.version for schema in schemas):
        return
    with connection:  # rolls back where a step fails
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_VERSIONS)
        for schema in schemas:  # another process may have migrated it meanwhile
            for step in schema.steps[_version(connection, path, schema) :]:
                for statement in _statements(step):
                    connection.execute(statement)
            row = (schema.component, schema.version)
            connection.execute("INSERT OR REPLACE INTO schema_version VALUES (?, ?)", row)


def _open(source: Path | str) -> sqlite3.Connection:
    """Open a database in WAL mode and read its list of tables, which shows most damage."""
    try:
        connection = sqlite3.connect(source, isolation_level=None, check_same_thread=False)
        _use_wal(connection)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        raise UnusableDatabaseError(str(source), str(error), damaged=False) from error
    except sqlite3.DatabaseError as error:
        raise UnusableDatabaseError(str(source), str(error), damaged=True) from error
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Set the journal mode, with retries: SQLite's busy timeout does not apply while another process sets it.

    Raises:
        sqlite3.OperationalError: the file is locked for long, or cannot be written.
    """
    (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout=0")  # else some of the attempts would wait, others fail at once
    for attempt in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == WAL_ATTEMPTS - 1:
                raise
            sleep(WAL_PAUSE)
        else:
            break
    connection.execute(f"PRAGMA busy_timeout={timeout}")


def checkpoint(path: Path) -> int:
    """Copy the log into the database file without blocking a writer; return the number of pages copied.

    Waits for the disk.
    """
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return int(row[2])


def _version(connection: sqlite3.Connection, path: Path | str, schema: StoreSchema) -> int:
    """Return the version of a component's tables in a file; 0 where none is recorded."""
    found = _recorded(connection, schema.component)
    _require_known(found, path, schema.component, schema.version)
    return found


def _recorded(connection: sqlite3.Connection, component: str) -> int:
    tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
    if connection.execute(tables).fetchone() is None:
        return 0
    query = "SELECT version FROM schema_version WHERE component = ?"
    row = connection.execute(query, (component,)).fetchone()
    return int(row[0]) if row else 0


def _require_known(found: int, path: Path | str, component: str, known: int) -> None:
    if found > known:
        raise NewerDatabaseError(str(path), component, found, known)


def _file_of(connection: sqlite3.Connection) -> str:
    """Return the file behind a connection, empty for one in memory."""
    return str(connection.execute("PRAGMA database_list").fetchone()[2])


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one: ``executescript`` would commit before the first."""
    statement = ""
    *parts, rest = script.split(";")
    for part in parts:
        statement += f"{part};"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if (statement + rest).strip():
        raise ValueError(f"not a complete SQL statement: {statement + rest!r}")
