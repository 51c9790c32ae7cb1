"""The queue of this node's transactions, kept in SQLite until they are confirmed.

An entry's state is queued, then signed, then confirmed; or refused, if a contract will never accept it.
The signed transaction is on disk before it is sent, so a kill at any point leaves either an entry that was
never sent or one whose exact bytes can be sent again. A replacement for higher fees keeps the nonce, so that
the chain takes one of a request's transactions at most.
"""

import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any, Final

from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.fees import Fees
from sapo_client.ledger.transactions import Call, Signed
from sapo_protocol.identifiers import Account, Digest
from sapo_verification.store import SQLITE_CHECKPOINT_PAGES, StoreSchema, open_database

_SCHEMA: Final = StoreSchema(
    "outbox",
    """
    CREATE TABLE IF NOT EXISTS owner (only INTEGER PRIMARY KEY CHECK (only = 1), name TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS entries (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        recipient BLOB,
        data BLOB NOT NULL,
        value_wei TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'signed', 'confirmed', 'refused')),
        note TEXT,
        settled_seconds INTEGER,
        UNIQUE (kind, key)
    );
    CREATE INDEX IF NOT EXISTS entries_by_state ON entries (state, id);
    CREATE TABLE IF NOT EXISTS transactions (
        id INTEGER PRIMARY KEY,
        entry INTEGER NOT NULL REFERENCES entries,
        live INTEGER NOT NULL DEFAULT 1,
        nonce INTEGER NOT NULL,
        digest BLOB NOT NULL UNIQUE,
        raw BLOB NOT NULL,
        gas INTEGER NOT NULL,
        tip_wei TEXT NOT NULL,
        most_wei TEXT NOT NULL,
        block INTEGER NOT NULL
    );
    CREATE INDEX IF NOT EXISTS transactions_by_entry ON transactions (entry);
    CREATE INDEX IF NOT EXISTS transactions_by_nonce ON transactions (nonce);
    """,
)
"""Transactions are never deleted, so that no nonce is used for a second request."""

_LIVE: Final = (
    "SELECT nonce, digest, raw, gas, tip_wei, most_wei, block FROM transactions"
    " WHERE entry = ? AND live ORDER BY id"
)


class EntryState(StrEnum):
    """State of an entry."""

    QUEUED = "queued"
    SIGNED = "signed"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One request for a transaction.

    Attributes:
        transactions: those that may still be mined, one of them at most: all have one nonce, and each
            pays more than the one before.
    """

    id: int
    kind: str
    key: str
    call: Call
    state: EntryState
    transactions: tuple[Signed, ...]
    note: str | None

    @property
    def signed(self) -> Signed | None:
        """Return the transaction that pays most, once there is one."""
        return self.transactions[-1] if self.transactions else None


class Outbox:
    """The open file, for one account in one swarm. May be used from several threads.

    Args:
        owner: names swarm and account; a file of another owner is not touched.
    """

    def __init__(self, path: Path, *, owner: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection = open_database(path, _SCHEMA, checkpoint_pages=SQLITE_CHECKPOINT_PAGES)
        # A nonce lost in a power failure would be used twice.
        self._connection.execute("PRAGMA synchronous = FULL")
        self._claim(path, owner)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add(self, kind: str, key: str, call: Call) -> bool:
        """Queue a request, unless it is queued or done already; a refused one is queued again.

        Returns:
            whether there is something new to send.
        """
        with self._transaction() as connection:
            changed = connection.execute(
                "INSERT INTO entries (kind, key, recipient, data, value_wei) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (kind, key) DO UPDATE SET state = 'queued', note = NULL,"
                " recipient = excluded.recipient, data = excluded.data, value_wei = excluded.value_wei"
                " WHERE state = 'refused'",
                (kind, key, call.to, call.data, str(call.value_wei)),
            )
            return changed.rowcount > 0

    def add_series(self, kind: str, calls: Sequence[Call]) -> bool:
        """Queue requests to be sent in this order, all or none; none while one of their kind is pending.

        For requests that are not idempotent: each series is new, whatever was requested before it.

        Returns:
            whether it was queued.
        """
        begun = "SELECT COUNT(*), TOTAL(state IN ('queued', 'signed')) FROM entries WHERE kind = ?"
        with self._transaction() as connection:
            known, under_way = connection.execute(begun, (kind,)).fetchone()
            if under_way:
                return False
            connection.executemany(
                "INSERT INTO entries (kind, key, recipient, data, value_wei) VALUES (?, ?, ?, ?, ?)",
                [
                    (kind, str(number), call.to, call.data, str(call.value_wei))
                    for number, call in enumerate(calls, start=known)
                ],
            )
            return True

    def key_after(self, kind: str, request: str) -> str:
        """Return the key of a request that may be made again after others of its kind, as A, B, A.

        The same request has the same key until another one of its kind is queued in between.
        """
        others = sum(e.kind == kind and not e.key.startswith(request) for e in self.entries())
        return f"{request}:{others}" if others else request

    def entries(self, *states: EntryState) -> list[OutboxEntry]:
        """Return the entries in given states (all if none is named), oldest first."""
        wanted = states or tuple(EntryState)
        marks = ", ".join("?" * len(wanted))
        chosen = f"SELECT * FROM entries WHERE state IN ({marks}) ORDER BY id"  # noqa: S608  # marks only
        signed: defaultdict[int, list[Signed]] = defaultdict(list)
        with self._transaction() as connection:
            rows = connection.execute(chosen, wanted).fetchall()
            for row in rows:
                signed[row[0]] += [_signed(found) for found in connection.execute(_LIVE, (row[0],))]
        return [_entry(row, signed[row[0]]) for row in rows]

    def is_queued(self, entry: OutboxEntry) -> bool:
        """Whether an entry still waits for its transaction."""
        with self._transaction() as connection:
            row = connection.execute("SELECT state FROM entries WHERE id = ?", (entry.id,)).fetchone()
        return EntryState(row[0]) is EntryState.QUEUED

    def counts(self, kind: str | None = None) -> dict[EntryState, int]:
        """Return how many entries, of one kind if it is named, are in each state."""
        query = "SELECT state, COUNT(*) FROM entries WHERE ? IS NULL OR kind = ? GROUP BY state"
        with self._transaction() as connection:
            rows = connection.execute(query, (kind, kind)).fetchall()
        return {**dict.fromkeys(EntryState, 0), **{EntryState(state): count for state, count in rows}}

    def sign(self, entry: OutboxEntry, signed: Signed) -> None:
        """Keep an entry's transaction, its first or a replacement; only now may it be sent.

        Args:
            entry: as it was read. Two transactions of one request under different nonces would both be mined,
                so nothing is signed for an entry that somebody else has changed since.

        Raises:
            LedgerError: its nonce was given to another request, or to a transaction that is over; or another
                process has signed or ended the entry.
        """
        fees = (str(signed.fees.tip), str(signed.fees.max_fee))
        with self._transaction() as connection:
            (state,) = connection.execute("SELECT state FROM entries WHERE id = ?", (entry.id,)).fetchone()
            live = tuple(_signed(row) for row in connection.execute(_LIVE, (entry.id,)))
            if (EntryState(state), live) != (entry.state, entry.transactions):
                raise LedgerError(
                    "another process of this account sends the same request",
                    hint="wait for it; only one process at a time may send from an account",
                )
            taken = "SELECT 1 FROM transactions WHERE nonce = ? AND (entry != ? OR NOT live)"
            if connection.execute(taken, (signed.nonce, entry.id)).fetchone() is not None:
                raise LedgerError(
                    f"nonce {signed.nonce} was used before: the chain is behind what it said",
                    hint="it is asked again; check the RPC addresses if that lasts",
                )
            connection.execute(
                "INSERT INTO transactions (entry, nonce, digest, raw, gas, tip_wei, most_wei, block)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (entry.id, signed.nonce, signed.digest, signed.raw, signed.gas, *fees, signed.block),
            )
            connection.execute("UPDATE entries SET state = 'signed' WHERE id = ?", (entry.id,))

    def requeue(self, entry: OutboxEntry, note: str) -> None:
        """Discard an entry's transactions, which can never be mined or have failed, and queue it again."""
        with self._transaction() as connection:
            connection.execute("UPDATE transactions SET live = 0 WHERE entry = ?", (entry.id,))
            connection.execute("UPDATE entries SET state = 'queued', note = ? WHERE id = ?", (note, entry.id))

    def confirm(self, entry: OutboxEntry, note: str | None = None, *, at_seconds: int | None = None) -> None:
        """Mark an entry as confirmed; ``at_seconds`` is the time of the block with its transaction."""
        self._move(
            "UPDATE entries SET state = 'confirmed', note = ?, settled_seconds = ? WHERE id = ?",
            (note, at_seconds, entry.id),
        )

    def refuse(self, entry: OutboxEntry, note: str) -> None:
        """Mark an entry as refused: its purpose cannot be reached."""
        self._move("UPDATE entries SET state = 'refused', note = ? WHERE id = ?", (note, entry.id))

    def reopen(self, chain_nonce: int) -> int:
        """Mark confirmed entries whose transactions the chain has lost as signed again; return how many."""
        with self._transaction() as connection:
            lost = "SELECT entry FROM transactions WHERE live AND nonce >= ?"
            changed = connection.execute(
                f"UPDATE entries SET state = 'signed' WHERE state = 'confirmed' AND id IN ({lost})",  # noqa: S608
                (chain_nonce,),
            )
            return changed.rowcount

    def next_nonce(self, chain_nonce: int) -> int:
        """Return the first nonce from the chain's on that no transaction has.

        A gap, which a wrong answer about the chain's nonce can leave, is filled first: later nonces wait for
        it.
        """
        query = "SELECT DISTINCT nonce FROM transactions WHERE nonce >= ?"
        with self._transaction() as connection:
            taken = {int(nonce) for (nonce,) in connection.execute(query, (chain_nonce,))}
        return next(nonce for nonce in count(chain_nonce) if nonce not in taken)

    def signed_before(self, block: int) -> int:
        """Return how many unconfirmed entries were first signed before a block."""
        query = (
            "SELECT COUNT(*) FROM (SELECT entry FROM transactions JOIN entries ON entry = entries.id"
            " WHERE live AND state = 'signed' GROUP BY entry HAVING MIN(block) < ?)"
        )
        with self._transaction() as connection:
            return int(connection.execute(query, (block,)).fetchone()[0])

    def last_settled_seconds(self) -> int | None:
        """Return the time of the newest block that holds a confirmed transaction, in Unix seconds."""
        with self._transaction() as connection:
            (last,) = connection.execute("SELECT MAX(settled_seconds) FROM entries").fetchone()
        return None if last is None else int(last)

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


def _entry(row: tuple[Any, ...], signed: list[Signed]) -> OutboxEntry:
    identifier, kind, key, recipient, data, value_wei, state, note, _ = row
    call = Call(None if recipient is None else Account(recipient), data, int(value_wei))
    return OutboxEntry(
        id=identifier,
        kind=kind,
        key=key,
        call=call,
        state=EntryState(state),
        transactions=tuple(signed),
        note=note,
    )


def _signed(row: tuple[Any, ...]) -> Signed:
    nonce, digest, raw, gas, tip, max_fee, block = row
    return Signed(nonce, Digest(digest), raw, gas, Fees(int(tip), int(max_fee)), block)
