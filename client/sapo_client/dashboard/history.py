"""The history of a node's figures, in SQLite: a sum per figure and interval, thinned with age.

Each figure is kept in intervals of four lengths. An interval holds the number of values, their sum and the
sum of their squares, so mean and 95 % interval follow for any age, and values are never rewritten when they
are thinned: the shorter intervals are only deleted. At most ``MAX_FIGURES`` figures and about
``ROWS_PER_FIGURE`` rows of each are kept, which bounds the file.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sapo_client.intervals import t_975
from sapo_verification.errors import UnusableDatabaseError
from sapo_verification.store import SQLITE_CHECKPOINT_PAGES, StoreSchema, open_database, transaction

_LOG = logging.getLogger(__name__)

HOUR: Final = 3600
DAY: Final = 24 * HOUR

MAX_FIGURES: Final = 256
"""Maximum number of figures, most of them families and reasons; further ones are dropped."""

MAX_EPOCHS: Final = 10_000
"""Final epochs kept."""

MAX_POINTS: Final = 360
"""Maximum number of points of a curve."""

SWEEP_SECONDS: Final = 600
"""Seconds between two deletions of old intervals."""


@dataclass(frozen=True, slots=True)
class HistoryLevel:
    """One length of intervals, and how long they are kept."""

    seconds: int
    kept_seconds: int


LEVELS: Final = (
    HistoryLevel(10, 2 * HOUR),
    HistoryLevel(120, DAY),
    HistoryLevel(1800, 14 * DAY),
    HistoryLevel(6 * HOUR, 730 * DAY),
)

ROWS_PER_FIGURE: Final = sum(level.kept_seconds // level.seconds + 1 for level in LEVELS)

_SCHEMA = StoreSchema(
    "history",
    """
    CREATE TABLE IF NOT EXISTS interval (
        level INTEGER NOT NULL, figure TEXT NOT NULL, start INTEGER NOT NULL,
        n INTEGER NOT NULL, total REAL NOT NULL, squares REAL NOT NULL,
        PRIMARY KEY (level, figure, start)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS epoch (
        epoch INTEGER PRIMARY KEY, at REAL NOT NULL, total INTEGER NOT NULL, root TEXT NOT NULL
    );
    """,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a figure.

    Attributes:
        at: seconds since 1970.
    """

    figure: str
    at: float
    value: float


@dataclass(slots=True)
class Moments:
    """Number, sum and sum of squares of values."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.n += 1
        self.total += value
        self.squares += value * value

    @property
    def mean(self) -> float:
        """The mean of the values, of which there must be some."""
        return self.total / self.n

    @property
    def half_width(self) -> float | None:
        """Half of the mean's 95 % interval by Student's t; none for a single value."""
        if self.n < 2:
            return None
        variance = max(0.0, (self.squares - self.total * self.total / self.n) / (self.n - 1))
        return t_975(self.n) * math.sqrt(variance / self.n)


CurveValue = tuple[int, float, float | None, int, float]
"""One point of a curve; see ``FigureCurve``."""


@dataclass(frozen=True, slots=True)
class FinalEpoch:
    """An epoch that is final on the ledger.

    Attributes:
        at: when this node saw it, in seconds since 1970.
        total: points of all accounts in it.
        root: of its contributions, hexadecimal.
    """

    epoch: int
    at: float
    total: int
    root: str


@dataclass(frozen=True, slots=True)
class FigureCurve:
    """A figure over time.

    Attributes:
        seconds: length of its intervals.
        points: start of each interval in seconds since 1970, mean, half width of its 95 % interval (none for
            a single value), number of values, and their sum.
    """

    seconds: int
    points: tuple[CurveValue, ...]


class FigureHistory:
    """The figures of one node; safe to use from several threads."""

    def __init__(self, path: Path | str) -> None:
        self._guard = threading.Lock()
        self._connection = open_database(path, _SCHEMA, checkpoint_pages=SQLITE_CHECKPOINT_PAGES)
        self._figures = set(self._names())
        self._swept = 0

    def close(self) -> None:
        """Close the file."""
        with self._guard:
            self._connection.close()

    def add(self, samples: Iterable[Sample]) -> None:
        """Add values in one transaction; now and then, delete intervals that are too old."""
        sums = self._sums(samples)
        if not sums:
            return
        newest = max(start for level, _, start in sums if level == 0)
        with self._guard, transaction(self._connection):
            self._connection.executemany(
                "INSERT INTO interval VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " n = n + excluded.n, total = total + excluded.total, squares = squares + excluded.squares",
                [(*place, each.n, each.total, each.squares) for place, each in sums.items()],
            )
            if newest >= self._swept + SWEEP_SECONDS:
                self._swept = newest
                self._sweep(newest)

    def _names(self) -> list[str]:
        """Return the names, sorted: one step in the index for each, however many intervals it has."""
        rows = self._connection.execute(
            "WITH RECURSIVE names(name) AS (SELECT '' UNION ALL"
            " SELECT (SELECT min(figure) FROM interval WHERE level = :level AND figure > name)"
            " FROM names WHERE name IS NOT NULL)"
            " SELECT name FROM names WHERE name > ''",
            {"level": len(LEVELS) - 1},
        )
        return [str(name) for (name,) in rows]

    def _sweep(self, now: int) -> None:
        self._connection.executemany(
            "DELETE FROM interval WHERE level = ? AND figure = ? AND start < ?",
            [
                (number, figure, now - level.kept_seconds)
                for number, level in enumerate(LEVELS)
                for figure in self._figures
            ],
        )

    def add_epoch(self, epoch: FinalEpoch) -> None:
        """Keep an epoch that has become final on the ledger."""
        row = (epoch.epoch, epoch.at, epoch.total, epoch.root)
        with self._guard, transaction(self._connection):
            self._connection.execute("INSERT OR IGNORE INTO epoch VALUES (?, ?, ?, ?)", row)
            self._connection.execute("DELETE FROM epoch WHERE epoch < ?", (epoch.epoch - MAX_EPOCHS,))

    def epochs(self, count: int) -> tuple[FinalEpoch, ...]:
        """Return the latest final epochs, newest first."""
        with self._guard:
            rows = self._connection.execute("SELECT * FROM epoch ORDER BY epoch DESC LIMIT ?", (count,))
            return tuple(FinalEpoch(*row) for row in rows)

    def figures(self) -> tuple[str, ...]:
        """Return the names of the figures, sorted; those that another process has added as well."""
        with self._guard:
            return tuple(self._names())

    def curves(
        self, figures: Iterable[str], *, since: float, now: float, after: int = 0
    ) -> Mapping[str, FigureCurve]:
        """Return figures from a moment until now, all in intervals of one length.

        Args:
            since: in seconds since 1970; with ``now`` it decides the length of the intervals.
            now: likewise.
            after: start of the first point that is wanted; earlier ones are left out.
        """
        number, seconds = level_for(since, now)
        window = since - LEVELS[number].seconds, after
        with self._guard:
            return {figure: self._curve(number, figure, window, seconds) for figure in figures}

    def span(self) -> tuple[int, int] | None:
        """Return the start of the first and of the last interval; none of an empty history."""
        query = "SELECT MIN(start), MAX(start) FROM interval WHERE level = ?"
        with self._guard:
            first, _ = self._connection.execute(query, (len(LEVELS) - 1,)).fetchone()
            _, last = self._connection.execute(query, (0,)).fetchone()
        return None if first is None else (int(first), int(last if last is not None else first))

    def _curve(self, number: int, figure: str, window: tuple[float, int], seconds: int) -> FigureCurve:
        rows = self._connection.execute(
            "SELECT start / ?1 * ?1 AS place, SUM(n), SUM(total), SUM(squares) FROM interval"
            " WHERE level = ?2 AND figure = ?3 AND start > ?4 AND start >= ?5 GROUP BY place ORDER BY place",
            (seconds, number, figure, *window),
        )
        points = []
        for start, *values in rows:
            sums = Moments(*values)
            points.append((int(start), sums.mean, sums.half_width, sums.n, sums.total))
        return FigureCurve(seconds, tuple(points))

    def _sums(self, samples: Iterable[Sample]) -> dict[tuple[int, str, int], Moments]:
        sums: dict[tuple[int, str, int], Moments] = {}
        for sample in samples:
            if sample.figure not in self._figures:
                if len(self._figures) >= MAX_FIGURES:
                    continue
                self._figures.add(sample.figure)
            for number, level in enumerate(LEVELS):
                start = int(sample.at // level.seconds) * level.seconds
                sums.setdefault((number, sample.figure, start), Moments()).add(sample.value)
        return sums


def level_for(since: float, now: float) -> tuple[int, int]:
    """Return the number of the finest level that reaches back so far, and the seconds of a point."""
    span = max(1.0, now - since)
    reaching = [number for number, level in enumerate(LEVELS) if span <= level.kept_seconds]
    number = reaching[0] if reaching else len(LEVELS) - 1
    seconds = LEVELS[number].seconds
    return number, seconds * max(1, math.ceil(span / seconds / MAX_POINTS))


def open_history(path: Path) -> FigureHistory:
    """Return the history in a file; a damaged file is kept beside it, and a new one begun.

    It is only for display, so a node starts without it.

    Raises:
        NewerDatabaseError: a newer version of this package has changed the tables.
    """
    try:
        return FigureHistory(path)
    except UnusableDatabaseError as error:
        if not error.damaged:
            raise
        aside = path.with_name(f"{path.name}.damaged")
        _LOG.warning("%s is damaged: it was renamed to %s, and the curves start empty", path, aside.name)
        path.replace(aside)
        for log in ("-wal", "-shm"):
            path.with_name(path.name + log).unlink(missing_ok=True)
        return FigureHistory(path)
