"""Processes that die between two statements of their databases, as a killed or crashed one does."""

import sqlite3
from dataclasses import dataclass, field
from types import TracebackType

from sapo_verification.engine import Engine


class Killed(BaseException):
    """The end of a process; no code of a node may see it, so no ``except Exception`` catches it."""


@dataclass
class Fuse:
    """How many more writes a process makes before it dies; none: it lives on."""

    left: int | None = None

    def burn(self) -> None:
        """Counts one write.

        Raises:
            Killed: the process is dead before it.
        """
        if self.left is None:
            return
        if self.left <= 0:
            raise Killed
        self.left -= 1


@dataclass
class MortalConnection:
    """A database connection of a process with a fuse; its transactions end with it, uncommitted."""

    connection: sqlite3.Connection
    fuse: Fuse

    def execute(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        """Return as the connection does, if the process lives."""
        if not statement.lstrip().upper().startswith("SELECT"):
            self.fuse.burn()
        return self.connection.execute(statement, *parameters)  # type: ignore[arg-type]

    def executemany(self, statement: str, *parameters: object) -> sqlite3.Cursor:
        """Return as the connection does, if the process lives."""
        self.fuse.burn()
        return self.connection.executemany(statement, *parameters)  # type: ignore[arg-type]

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.in_transaction

    def __enter__(self) -> "MortalConnection":
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
class Mortality:
    """The fuse of a process and every connection that it opened; closed long after its end."""

    fuse: Fuse = field(default_factory=Fuse)
    connections: list[sqlite3.Connection] = field(default_factory=list)

    def seize(self, *owners: object) -> None:
        """Puts the fuse between the owners and their databases."""
        for owner in owners:
            connection: sqlite3.Connection = owner._connection  # type: ignore[attr-defined]
            self.connections.append(connection)
            owner._connection = MortalConnection(connection, self.fuse)  # type: ignore[attr-defined]

    def seize_engine(self, engine: Engine) -> None:
        """Put the fuse between an engine and its databases."""
        mortal = MortalConnection(engine._connection, self.fuse)
        parts = (engine.certificates, engine.reputation, engine.reputation._suspensions, engine.pool)
        stores = (engine.envelopes, engine.origins, engine.proofs, engine.count, engine._verifier)
        self.connections.append(engine._connection)
        for owner in (engine, *parts, *stores):
            owner._connection = mortal  # type: ignore[assignment]
        self.seize(engine.contributions)

    def bury(self) -> None:
        """Gives the files back."""
        for connection in self.connections:
            connection.close()
