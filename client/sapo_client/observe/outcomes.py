"""Outcomes of rollouts, kept far longer than the event file: `sapo ledger explain` and exports read them.

An event takes hundreds of bytes, an outcome takes about 70. Outcomes are written once per training step, so a
crash loses those of one step, which the event file still holds.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_verification.store import StoreSchema, open_database, transaction

MAX_ROWS: Final = 2_000_000
"""Maximum number of rollouts stored, own and others', about 140 MB: three days at one step per second with
four own and four others' rollouts. Older ones are summed up, one row per epoch."""

_FLUSH_ROWS: Final = 256
"""This many unwritten outcomes are written even if no step has ended."""

MAX_WAITING: Final = 16_384
"""Maximum number of unwritten outcomes while the disk cannot be written, a few MB; the oldest are dropped."""

_LOG = logging.getLogger(__name__)

_SCHEMA = StoreSchema(
    "outcomes",
    """
    CREATE TABLE IF NOT EXISTS outcome (
        number INTEGER PRIMARY KEY, content_id BLOB NOT NULL UNIQUE, epoch INTEGER, reward REAL
    );
    CREATE INDEX IF NOT EXISTS outcome_epoch ON outcome (epoch) WHERE epoch IS NOT NULL;
    CREATE TABLE IF NOT EXISTS epoch_total (
        epoch INTEGER PRIMARY KEY, shared INTEGER NOT NULL, payable INTEGER NOT NULL, equal INTEGER NOT NULL
    );
    """,
    """
    CREATE TABLE IF NOT EXISTS step (
        number INTEGER PRIMARY KEY, step INTEGER NOT NULL, seconds INTEGER NOT NULL, epoch INTEGER NOT NULL,
        reward REAL NOT NULL, own INTEGER NOT NULL, reinforced INTEGER NOT NULL, practised INTEGER NOT NULL,
        imitated INTEGER NOT NULL
    );
    """,
)

MAX_STEPS: Final = 1_000_000
"""Maximum number of training steps stored, about 50 MB: eleven days at one step per second."""

_STEP = """
    INSERT INTO step (step, seconds, epoch, reward, own, reinforced, practised, imitated)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_SHARED = "INSERT OR IGNORE INTO outcome (content_id, epoch) VALUES (?, ?)"
_SCORED = """
    INSERT INTO outcome (content_id, reward) VALUES (?, ?)
    ON CONFLICT (content_id) DO UPDATE SET reward = excluded.reward
"""
_TOTALS = """
    INSERT INTO epoch_total
    SELECT epoch, count(*), sum(reward > 0 AND reward < 1), sum(reward = 0 OR reward = 1)
    FROM outcome WHERE epoch IS NOT NULL AND number <= ? GROUP BY epoch
    ON CONFLICT (epoch) DO UPDATE SET shared = shared + excluded.shared,
        payable = payable + coalesce(excluded.payable, 0), equal = equal + coalesce(excluded.equal, 0)
"""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step.

    Attributes:
        seconds: Unix time of its end.
        reward: mean over the node's own completions.
        own: number of own groups in the batch.
        reinforced: number of others' rollouts whose text entered the policy gradient.
        practised: number of others' rollouts whose task was answered by the own policy instead.
        imitated: number of others' rollouts used for supervised fine-tuning.
    """

    step: int
    seconds: int
    epoch: int
    reward: float
    own: int
    reinforced: int
    practised: int
    imitated: int


class OutcomeStore:
    """Outcomes of shared and scored rollouts, in a file of their own; thread-safe.

    Args:
        max_rows: rollouts kept one by one.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_rows: int = MAX_ROWS,
        max_steps: int = MAX_STEPS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = open_database(path, _SCHEMA, checkpoint_pages=1000)
        self._max_rows = max_rows
        self._max_steps = max_steps
        self._clock = clock
        self._guard = threading.Lock()
        self._notes: list[tuple[str, tuple[object, ...]]] = []

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Take an event of the node; see ``EventLog.listen``. What cannot be written now waits in memory."""
        match event, fields:
            case "published", {"content_id": bytes(id_), "epoch": int(epoch)}:
                self._add(_SHARED, (bytes(id_), epoch))
            case "verified", {"content_id": bytes(id_), "mean_reward": float(reward)}:
                self._add(_SCORED, (bytes(id_), reward))
            case "step", {"step": int(step), "epoch": int(epoch), "reward": float(reward)}:
                self._add(_STEP, (step, int(self._clock()), epoch, reward, *_used(fields)))
                self._flush_or_keep()
            case "stopped", _:
                self._flush_or_keep()

    def flush(self) -> None:
        """Write the pending outcomes, and sum up the oldest rollouts beyond the maximum.

        Raises:
            sqlite3.OperationalError: it cannot be written, as on a full disk; the outcomes stay pending.
        """
        with self._guard:
            if not self._notes:
                return
            with transaction(self._connection):
                for statement, values in self._notes:
                    self._connection.execute(statement, values)
                (last,) = self._connection.execute("SELECT max(number) FROM outcome").fetchone()
                self._forget((last or 0) - self._max_rows)
                oldest = "DELETE FROM step WHERE number <= (SELECT max(number) FROM step) - ?"
                self._connection.execute(oldest, (self._max_steps,))
            self._notes.clear()

    def own(self, epoch: int) -> Iterator[tuple[str, float | None]]:
        """Yield content id and mean reward of this node's rollouts of an epoch, in the order of sharing."""
        query = "SELECT content_id, reward FROM outcome WHERE epoch = ? ORDER BY number"
        return ((bytes(id_).hex(), reward) for id_, reward in self._connection.execute(query, (epoch,)))

    def totals(self, epoch: int) -> tuple[int, int, int] | None:
        """Return how many rollouts of an old epoch were shared, payable, and all right or all wrong."""
        query = "SELECT shared, payable, equal FROM epoch_total WHERE epoch = ?"
        row = self._connection.execute(query, (epoch,)).fetchone()
        return None if row is None else (row[0], row[1], row[2])

    def steps(self) -> Iterator[StepRecord]:
        """Yield the training steps, oldest first."""
        query = """
            SELECT step, seconds, epoch, reward, own, reinforced, practised, imitated
            FROM step ORDER BY number
        """
        return (StepRecord(*row) for row in self._connection.execute(query))

    def rewards(self, content_ids: Iterable[bytes]) -> Mapping[bytes, float]:
        """Return the mean rewards of those rollouts that were scored."""
        query = "SELECT reward FROM outcome WHERE content_id = ? AND reward IS NOT NULL"
        found = ((id_, self._connection.execute(query, (bytes(id_),)).fetchone()) for id_ in content_ids)
        return {id_: row[0] for id_, row in found if row is not None}

    def close(self) -> None:
        """Write the pending outcomes, and close the file."""
        self.flush()
        self._connection.close()

    def _add(self, statement: str, values: tuple[object, ...]) -> None:
        with self._guard:
            self._notes.append((statement, values))
            is_full = len(self._notes) >= _FLUSH_ROWS
        if is_full:
            self._flush_or_keep()

    def _flush_or_keep(self) -> None:
        """Write the pending outcomes; while that fails, keep the newest ones: training must continue."""
        try:
            self.flush()
        except sqlite3.OperationalError as error:
            with self._guard:
                del self._notes[:-MAX_WAITING]
            _LOG.warning("outcomes cannot be written now and stay pending: %s", error)

    def _forget(self, number: int) -> None:
        (oldest,) = self._connection.execute("SELECT min(number) FROM outcome").fetchone()
        if oldest is not None and oldest <= number:
            self._connection.execute(_TOTALS, (number,))
            self._connection.execute("DELETE FROM outcome WHERE number <= ?", (number,))


def _used(fields: Mapping[str, object]) -> tuple[int, int, int, int]:
    """Return how many groups of a step were own, reinforced, practised and imitated."""
    local, external, private = (fields.get(name) for name in ("local", "external", "private"))
    own = (len(local) if isinstance(local, Sequence) else 0) + (private if isinstance(private, int) else 0)
    uses = [each["use"] for each in external] if isinstance(external, Sequence) else []
    return own, uses.count("reinforced"), uses.count("practised"), uses.count("imitated")
