"""The chain's one SQLite file: blocks, the state after each of them, an index of transactions and logs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eth_hash.auto import keccak

from sapo_client.ledger.chain.evm import AccountState, StateChanges
from sapo_client.ledger.chain.header import Header
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
    """
    CREATE TABLE genesis (only INTEGER PRIMARY KEY CHECK (only = 1), parameters BLOB NOT NULL);
    CREATE TABLE blocks (
        number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, header BLOB NOT NULL, raw BLOB
    );
    CREATE TABLE codes (hash BLOB PRIMARY KEY, code BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE accounts (
        address BLOB, block INTEGER, nonce INTEGER, balance BLOB, code BLOB, PRIMARY KEY (address, block)
    ) WITHOUT ROWID;
    CREATE TABLE slots (
        address BLOB, slot BLOB, block INTEGER, value BLOB NOT NULL, PRIMARY KEY (address, slot, block)
    ) WITHOUT ROWID;
    """,
)
"""Step 1 is version 0.1.0, which kept blocks and state as py-evm's key/value pairs; nothing writes to that
table any more. Accounts and slots have a row for each block that changed them. ``nonce`` is NULL where an
account is gone, ``value`` empty where a slot is cleared."""


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


@dataclass(frozen=True, slots=True)
class Block:
    """One mined block.

    Attributes:
        raw: the signed transaction in it; none in the genesis block.
        changes: how its state differs from that of the block before.
    """

    header: Header
    raw: bytes | None
    changes: StateChanges
    entry: IndexEntry | None = None


class ChainStore:
    """The open file. Its user serialises the calls; SQLite's own lock is not relied on."""

    def __init__(self, path: Path) -> None:
        self.connection = open_database(path, _SCHEMA, checkpoint_pages=SQLITE_CHECKPOINT_PAGES)
        # A block is acknowledged once it would survive a power cut, not only a kill.
        self.connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    @contextmanager
    def transaction_of_all(self) -> Iterator[None]:
        """Commit what is written inside, all or nothing."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    # Blocks and state

    def genesis(self) -> bytes | None:
        """Return the parameters that the chain was created with; none before that."""
        row = self.connection.execute("SELECT parameters FROM genesis").fetchone()
        return None if row is None else row[0]

    def put_genesis(self, parameters: bytes) -> None:
        """Write the parameters that the chain is created with."""
        self.connection.execute("INSERT INTO genesis VALUES (1, ?)", (parameters,))

    def put(self, block: Block) -> None:
        """Write a block, the state's changes and the index entry into the open transaction."""
        number = block.header.block_number
        row = (number, block.header.hash, block.header.to_bytes(), block.raw)
        self.connection.execute("INSERT INTO blocks VALUES (?, ?, ?, ?)", row)
        self._put_accounts(number, block.changes.accounts)
        slots = [
            (address, slot.to_bytes(32, "big"), number, _shortest(value))
            for (address, slot), value in block.changes.slots.items()
        ]
        self.connection.executemany("INSERT INTO slots VALUES (?, ?, ?, ?)", slots)
        if block.entry is not None:
            self._index(block.entry)

    def _put_accounts(self, number: int, accounts: Mapping[bytes, AccountState | None]) -> None:
        for address, account in accounts.items():
            row: tuple[object, ...] = (address, number, None, None, None)
            if account is not None:
                code_hash = keccak(account.code)
                self.connection.execute(
                    "INSERT OR IGNORE INTO codes VALUES (?, ?)", (code_hash, account.code)
                )
                row = (address, number, account.nonce, _shortest(account.balance), code_hash)
            self.connection.execute("INSERT INTO accounts VALUES (?, ?, ?, ?, ?)", row)

    def head(self) -> Header:
        """Return the last block's header."""
        row = self.connection.execute("SELECT header FROM blocks ORDER BY number DESC LIMIT 1").fetchone()
        return Header.from_bytes(row[0])

    def header(self, number: int) -> Header | None:
        """Return the header of a block by number."""
        return self._header("SELECT header FROM blocks WHERE number = ?", number)

    def header_by_hash(self, block_hash: bytes) -> Header | None:
        """Return the header of a block by hash."""
        return self._header("SELECT header FROM blocks WHERE hash = ?", block_hash)

    def _header(self, query: str, key: object) -> Header | None:
        row = self.connection.execute(query, (key,)).fetchone()
        return None if row is None else Header.from_bytes(row[0])

    def raw(self, number: int) -> bytes | None:
        """Return the signed transaction in a block; none if there is none."""
        row = self.connection.execute("SELECT raw FROM blocks WHERE number = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def hashes_before(self, number: int, count: int) -> tuple[bytes, ...]:
        """Return the hashes of at most so many blocks before one, oldest first."""
        query = "SELECT hash FROM blocks WHERE number >= ? AND number < ? ORDER BY number"
        return tuple(row[0] for row in self.connection.execute(query, (number - count, number)))

    def accounts(self, block: int) -> dict[bytes, AccountState]:
        """Return all accounts as a block left them."""
        # With MAX, SQLite takes the other columns from the row that has the largest value.
        query = """
            SELECT address, nonce, balance, codes.code FROM (
                SELECT address, MAX(block), nonce, balance, code
                FROM accounts WHERE block <= ? GROUP BY address
            ) AS newest JOIN codes ON codes.hash = newest.code
        """
        return {
            address: AccountState(nonce, int.from_bytes(balance, "big"), code)
            for address, nonce, balance, code in self.connection.execute(query, (block,))
        }

    def slots(self, block: int) -> dict[tuple[bytes, int], int]:
        """Return all storage slots that are not 0 as a block left them."""
        query = "SELECT address, slot, MAX(block), value FROM slots WHERE block <= ? GROUP BY address, slot"
        return {
            (address, int.from_bytes(slot, "big")): int.from_bytes(value, "big")
            for address, slot, _, value in self.connection.execute(query, (block,))
            if value
        }

    # Index

    def _index(self, entry: IndexEntry) -> None:
        row = (entry.transaction_hash, entry.block, json.dumps(entry.body), json.dumps(entry.receipt))
        self.connection.execute("INSERT INTO transactions VALUES (?, ?, ?, ?)", row)
        logs = [(entry.block, log["address"], json.dumps(log)) for log in entry.receipt["logs"]]
        self.connection.executemany("INSERT INTO logs (block, address, body) VALUES (?, ?, ?)", logs)

    def transaction(self, transaction_hash: bytes) -> Json | None:
        """Return a mined transaction."""
        return self._one("SELECT body FROM transactions WHERE hash = ?", transaction_hash)

    def receipt(self, transaction_hash: bytes) -> Json | None:
        """Return a mined transaction's receipt."""
        return self._one("SELECT receipt FROM transactions WHERE hash = ?", transaction_hash)

    def transactions_in(self, block: int) -> list[Json]:
        """Return the transactions of one block."""
        rows = self.connection.execute("SELECT body FROM transactions WHERE block = ?", (block,))
        return [json.loads(body) for (body,) in rows]

    def logs(self, wanted: LogFilter) -> list[Json]:
        """Return the logs that match, oldest first."""
        logs = (json.loads(body) for (body,) in self._log_rows(wanted))
        return [log for log in logs if wanted.matches(log)]

    def _log_rows(self, wanted: LogFilter) -> Iterable[tuple[str]]:
        span = (wanted.first_block, wanted.last_block)
        if not wanted.addresses:
            return self.connection.execute(
                "SELECT body FROM logs WHERE block BETWEEN ? AND ? ORDER BY id", span
            )
        marks = ", ".join("?" * len(wanted.addresses))
        query = f"SELECT body FROM logs WHERE block BETWEEN ? AND ? AND address IN ({marks}) ORDER BY id"  # noqa: S608  # only question marks
        return self.connection.execute(query, (*span, *wanted.addresses))

    def _one(self, query: str, key: bytes) -> Json | None:
        row = self.connection.execute(query, (key,)).fetchone()
        return None if row is None else json.loads(row[0])


def _shortest(value: int) -> bytes:
    """Return a number of up to 256 bits, which SQLite has no type for: big-endian, without leading zeros."""
    return value.to_bytes((value.bit_length() + 7) // 8, "big")
