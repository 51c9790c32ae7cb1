"""What this node wants on the chain, kept in SQLite until the chain has it.

An entry goes queued -> signed -> confirmed; a contract that will never accept it makes it refused.
The signed transaction is on disk before it is sent, so a kill at any point leaves either an entry that was
never sent or one whose exact bytes can be sent again, never two transactions for one wish.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.transactions import Call, Signed
from sapo_protocol.identifiers import Account, Digest

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS owner (only INTEGER PRIMARY KEY CHECK (only = 1), name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    recipient BLOB,
    data BLOB NOT NULL,
    value_wei TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'signed', 'confirmed', 'refused')),
    nonce INTEGER,
    digest BLOB,
    raw BLOB,
    note TEXT,
    UNIQUE (kind, key),
    CHECK ((state = 'signed') <= (raw IS NOT NULL))
);
CREATE INDEX IF NOT EXISTS entries_by_state ON entries (state, id);
"""


class State(StrEnum):
    """How far an entry is."""

    QUEUED = "queued"
    SIGNED = "signed"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Entry:
    """One wish; ``signed`` holds its transaction once there is one."""

    id: int
    kind: str
    key: str
    call: Call
    state: State
    signed: Signed | None
    note: str | None


class Outbox:
    """The open file, for one account in one swarm. May be used from several threads.

    Args:
        owner: names swarm and account; a file of another owner is not touched.
    """

    def __init__(self, path: Path, *, owner: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        # A nonce that a power cut makes us forget would be used twice.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_SCHEMA)
        self._claim(path, owner)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add(self, kind: str, key: str, call: Call) -> bool:
        """Queue a wish once, however often it is made; one that was refused gets another chance.

        Returns:
            whether there is something new to send.
        """
        with self._transaction() as connection:
            changed = connection.execute(
                "INSERT INTO entries (kind, key, recipient, data, value_wei) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (kind, key) DO UPDATE SET state = 'queued', note = NULL, nonce = NULL,"
                " digest = NULL, raw = NULL, recipient = excluded.recipient, data = excluded.data"
                " WHERE state = 'refused'",
                (kind, key, call.to, call.data, str(call.value_wei)),
            )
            return changed.rowcount > 0

    def entries(self, *states: State) -> list[Entry]:
        """The entries in given states (all if none is named), oldest first."""
        wanted = states or tuple(State)
        marks = ", ".join("?" * len(wanted))
        query = f"SELECT * FROM entries WHERE state IN ({marks}) ORDER BY id"  # noqa: S608  # marks only
        with self._transaction() as connection:
            return [_entry(row) for row in connection.execute(query, wanted).fetchall()]

    def counts(self) -> dict[State, int]:
        """How many entries are in each state."""
        with self._transaction() as connection:
            rows = connection.execute("SELECT state, COUNT(*) FROM entries GROUP BY state").fetchall()
        return {**dict.fromkeys(State, 0), **{State(state): count for state, count in rows}}

    def sign(self, entry: Entry, signed: Signed) -> None:
        """Keep an entry's transaction; only now may it be sent."""
        self._move(
            "UPDATE entries SET state = 'signed', nonce = ?, digest = ?, raw = ? WHERE id = ?",
            (signed.nonce, signed.digest, signed.raw, entry.id),
        )

    def requeue(self, entry: Entry, note: str) -> None:
        """Forget an entry's transaction, for it can never be mined or has failed."""
        self._move(
            "UPDATE entries SET state = 'queued', nonce = NULL, digest = NULL, raw = NULL, note = ?"
            " WHERE id = ?",
            (note, entry.id),
        )

    def confirm(self, entry: Entry, note: str | None = None) -> None:
        """An entry's purpose is reached."""
        self._move("UPDATE entries SET state = 'confirmed', note = ? WHERE id = ?", (note, entry.id))

    def refuse(self, entry: Entry, note: str) -> None:
        """An entry's purpose cannot be reached."""
        self._move("UPDATE entries SET state = 'refused', note = ? WHERE id = ?", (note, entry.id))

    def next_nonce(self, chain_nonce: Callable[[], int]) -> int:
        """The nonce after the last signed one; the chain's if nothing is under way."""
        with self._transaction() as connection:
            row = connection.execute("SELECT MAX(nonce) FROM entries WHERE state = 'signed'").fetchone()
        return chain_nonce() if row[0] is None else int(row[0]) + 1

    def _claim(self, path: Path, owner: str) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO owner VALUES (1, ?)", (owner,))
            (found,) = connection.execute("SELECT name FROM owner").fetchone()
        if found != owner:
            self.close()
            raise LedgerError(
                f"the outbox {path} belongs to another swarm or account ({found})",
                hint="use one data directory per swarm and account",
            )

    def _move(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._transaction() as connection:
            connection.execute(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _entry(row: tuple[Any, ...]) -> Entry:
    identifier, kind, key, recipient, data, value_wei, state, nonce, digest, raw, note = row
    call = Call(None if recipient is None else Account(recipient), data, int(value_wei))
    signed = None if raw is None else Signed(nonce, Digest(digest), raw)
    return Entry(identifier, kind, key, call, State(state), signed, note)
