"""The endurance run: figures read from a process, and trends of the second half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sapo_client.bench.endurance import EnduranceSample, EnduranceTrend, look, open_files, trends
from sapo_client.bench.fast_clock import fast_clock
from sapo_client.paths import DataDir


def sample(seconds: float, step: int, node_bytes: int) -> EnduranceSample:
    return EnduranceSample(
        node=0, seconds=seconds, step=step, accepted=0, node_bytes=node_bytes, learner_bytes=5, files=9,
        database_bytes=1, events_bytes=1, folder_bytes=1,
    )  # fmt: skip


def test_trends_are_computed_from_the_second_half() -> None:
    early = [sample(10.0 * n, n, 10_000 - n) for n in range(50)]
    late = [sample(500.0 + 10 * n, 100 + 2 * n, 1000 + 6 * n) for n in range(51)]
    found = {trend.figure: trend for trend in trends([*early, *late])}
    mine = found["node_bytes"]
    assert (mine.first, mine.last) == (1000, 1300)
    assert round(mine.per_hour) == 6 * 360
    assert round(mine.per_thousand_steps) == 3000
    assert found["files"] == EnduranceTrend("files", 0, first=9, last=9, per_hour=0.0, per_thousand_steps=0.0)


def test_a_sample_counts_open_files_and_bytes_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "node.sqlite").write_bytes(b"x" * 1000)
    (tmp_path / "node.sqlite-wal").write_bytes(b"x" * 500)
    (tmp_path / "events.jsonl.1").write_bytes(b"x" * 70)
    (tmp_path / "status.json").write_text('{"step": 3, "accepted": 8}')
    # not this process: what earlier tests left open may be closed at any time
    script = "import sys; print(flush=True); input(); kept = open(sys.argv[1]); print(flush=True); input()"
    command = [sys.executable, "-c", script, str(tmp_path / "node.sqlite")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        before = open_files(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        seen = look(0, 1.0, process.pid, DataDir(tmp_path))
        process.stdin.write("\n")
    assert (seen.step, seen.accepted, seen.files) == (3, 8, before + 1)
    assert (seen.database_bytes, seen.events_bytes, seen.folder_bytes) == (1500, 70, 1596)
    assert seen.node_bytes > 1_000_000


def test_a_fast_clock_begins_where_the_real_one_is() -> None:
    real = iter((1000.0, 1000.5, 1060.0))
    clock = fast_clock(1000.0, 60.0, lambda: next(real))
    assert [clock(), clock(), clock()] == [1000.0, 1030.0, 4600.0]


def test_a_command_runs_with_the_fast_clock() -> None:
    """The whole program sees it, for it is set before the program is imported."""
    command = [sys.executable, "-m", "sapo_client.bench.fast_clock", "0", "2", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("sapo ")
