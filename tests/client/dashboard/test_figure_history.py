"""The history: means and intervals at every age, thinning, bounds, damage."""

from __future__ import annotations

import math
import random
import sqlite3
import statistics
from contextlib import closing
from pathlib import Path

import pytest

from sapo_client.dashboard.history import (
    DAY,
    HOUR,
    LEVELS,
    MAX_FIGURES,
    MAX_POINTS,
    ROWS_PER_FIGURE,
    FigureHistory,
    FinalEpoch,
    Moments,
    Sample,
    open_history,
)

NOW = 1_800_000_000


def test_an_interval_holds_mean_and_student_interval() -> None:
    chance = random.Random(1)
    values = [chance.random() for _ in range(5)]
    moments = Moments()
    for value in values:
        moments.add(value)
    assert math.isclose(moments.mean, statistics.mean(values))
    assert moments.half_width is not None
    expected = 2.776 * statistics.stdev(values) / math.sqrt(5)  # t at 97.5 %, four degrees of freedom
    assert math.isclose(moments.half_width, expected)
    single = Moments(1, 0.5, 0.25)
    assert (single.mean, single.half_width) == (0.5, None)


@pytest.mark.parametrize(
    ("hours", "seconds"), [(1, 10), (2, 20), (24, 240), (14 * 24, 3600), (365 * 24, 4 * 6 * HOUR + 6 * HOUR)]
)
def test_a_curve_of_any_span_has_the_same_mean_and_few_points(hours: int, seconds: int) -> None:
    history = FigureHistory(":memory:")
    step = hours * HOUR // 400
    samples = [Sample("own", NOW - hours * HOUR + number * step, number % 2) for number in range(401)]
    history.add(samples)
    curve = history.curves(["own"], since=NOW - hours * HOUR, now=NOW)["own"]
    assert curve.seconds == seconds
    assert len(curve.points) <= MAX_POINTS + 2
    assert sum(point[3] for point in curve.points) == 401
    assert sum(point[4] for point in curve.points) == 200


def test_points_after_a_time_equal_the_end_of_the_whole_curve() -> None:
    history = FigureHistory(":memory:")
    history.add([Sample("own", NOW - 7000 + 5 * number, number % 2) for number in range(1400)])
    whole = history.curves(["own"], since=NOW - 7200, now=NOW)["own"]
    after = NOW - 100
    newest = history.curves(["own"], since=NOW - 7200, now=NOW, after=after)["own"]
    assert newest.seconds == whole.seconds == 20
    assert newest.points == tuple(point for point in whole.points if point[0] >= after) != ()


def test_the_history_has_bounded_rows_and_covers_two_years() -> None:
    history = FigureHistory(":memory:")
    start = NOW - 800 * DAY
    for day in range(800):
        history.add([Sample("own", start + day * DAY + hour * HOUR, 0.25) for hour in range(24)])
    [row] = history._connection.execute("SELECT COUNT(*) FROM interval").fetchall()
    assert row[0] <= ROWS_PER_FIGURE
    span = history.span()
    assert span is not None
    assert NOW - 732 * DAY <= span[0] <= NOW - 728 * DAY
    points = history.curves(["own"], since=NOW - 729 * DAY, now=NOW)["own"].points
    assert {point[1] for point in points} == {0.25}
    assert len(points) >= 90


def test_figures_are_bounded_in_number() -> None:
    history = FigureHistory(":memory:")
    history.add([Sample(f"refused/{number}", NOW, 1.0) for number in range(MAX_FIGURES + 50)])
    assert len(history.figures()) == MAX_FIGURES


def test_it_continues_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    history = open_history(path)
    history.add([Sample("own", NOW, 1.0)])
    history.add_epoch(FinalEpoch(3, NOW, 12, "ab"))
    history.close()
    again = open_history(path)
    again.add([Sample("own", NOW + 1, 0.0)])
    [(start, mean, half, n, total)] = again.curves(["own"], since=NOW - HOUR, now=NOW)["own"].points
    assert (start, mean, n, total) == (NOW, 0.5, 2, 1.0)
    assert half == pytest.approx(12.706 * 0.5)  # t at 97.5 % with one degree of freedom
    assert again.epochs(5) == (FinalEpoch(3, NOW, 12, "ab"),)
    again.close()


def test_a_damaged_file_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(b"this is no database at all" * 100)
    history = open_history(path)
    history.add([Sample("own", NOW, 1.0)])
    assert history.figures() == ("own",)
    history.close()
    assert (tmp_path / "history.sqlite.damaged").read_bytes() == b"this is no database at all" * 100
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_levels_are_sorted_by_interval_and_retention() -> None:
    assert [level.seconds for level in LEVELS] == sorted(level.seconds for level in LEVELS)
    assert [level.kept_seconds for level in LEVELS] == sorted(level.kept_seconds for level in LEVELS)
