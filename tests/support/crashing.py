"""Database connections that end a process between two statements, as a kill or a crash does."""

import sqlite3
from dataclasses import dataclass, field
from types import TracebackType

from sapo_verification.engine import Engine


class Killed(BaseException):
    """End of a process; no ``except Exception`` of a node's code catches it."""


@dataclass
class WriteBudget:
    """Number of writes that a process still makes before it ends; None for any number."""

    left: int | None = None

    def spend(self) -> None:
        """Count a write.

        Raises:
            Killed: the process ends before this write.
        """
        if self.left is None:
            return
        if self.left <= 0:
            raise Killed
        self.left -= 1


@dataclass
class CrashingConnection:
    """Database connection of a process with a write budget; its end rolls an open transaction back."""

    connection: sqlite3.Connection
    budget: WriteBudget

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        """Execute a statement; one that writes spends the budget."""
        if not statement.lstrip().upper().startswith("SELECT"):
            self.budget.spend()
        return self.connection.execute(statement, *parameters)  # type: ignore[arg-type]

    def executemany(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        """Execute a statement that writes, which spends the budget."""
        self.budget.spend()
        return self.connection.executemany(statement, *parameters)  # type: ignore[arg-type]

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.in_transaction

    def __enter__(self) -> "CrashingConnection":
        self.connection.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self.connection.__exit__(kind, error, trace)


@dataclass
class CrashControl:
    """Write budget of a process, and the connections that it opened, which are closed after the test."""

    budget: WriteBudget = field(default_factory=WriteBudget)
    connections: list[sqlite3.Connection] = field(default_factory=list)

    def wrap(self, *owners: object) -> None:
        """Apply the budget to the connections of these owners."""
        for owner in owners:
            connection: sqlite3.Connection = owner._connection  # type: ignore[attr-defined]
            self.connections.append(connection)
            owner._connection = CrashingConnection(connection, self.budget)  # type: ignore[attr-defined]

    def wrap_engine(self, engine: Engine) -> None:
        """Apply the budget to all connections of an engine."""
        crashing = CrashingConnection(engine._connection, self.budget)
        parts = (engine.certificates, engine.reputation, engine.reputation._suspensions, engine.pool)
        stores = (engine.envelopes, engine.origins, engine.proofs, engine.count, engine._verifier)
        self.connections.append(engine._connection)
        for owner in (engine, *parts, *stores):
            owner._connection = crashing  # type: ignore[assignment]
        self.wrap(engine.contributions)

    def close(self) -> None:
        """Close the files."""
        for connection in self.connections:
            connection.close()
