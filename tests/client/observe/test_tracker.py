"""The trackers: figures arrive in the real libraries, without a network, and their failure has no effect."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from sapo_client import extras
from sapo_client.config import ObserveConfig
from sapo_client.errors import SapoError
from sapo_client.node.runtime.tracking import FIGURES, WAITING, Tracking
from sapo_client.observe.tracker import TensorboardTracker, follow
from sapo_client.paths import DataDir

STEPS: dict[int, dict[str, object]] = {
    step: dict.fromkeys(FIGURES, step / 4) | {"step": step, "local": [b"a"], "external": [{}, {}]}
    for step in (1, 2, 3)
}
TRACKED = {step: dict.fromkeys(FIGURES, step / 4) | {"own_groups": 1, "external_groups": 2} for step in STEPS}


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    made = DataDir(tmp_path / "node").create()
    made.log.parent.mkdir()
    return made


async def track(data: DataDir, tracker: str) -> None:
    """Let the tracker's process take three steps and end."""
    tracking = Tracking(ObserveConfig(tracker=tracker), data, run="abc")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tracking.run)
        tracking.note("learner_restarted", {"step": 9})
        for fields in STEPS.values():
            tracking.note("step", fields)
        while tracking.waiting:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert tracking.missed == 0


async def test_tensorboard_keeps_every_figure(data: DataDir) -> None:
    await track(data, "tensorboard")
    assert tensorboard_figures(data.root / "tensorboard") == TRACKED


def tensorboard_figures(folder: Path) -> dict[int, dict[str, float]]:
    """Return the figures by step, as TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder)).Reload()
    found: dict[int, dict[str, float]] = {}
    for tag in read.Tags()["scalars"]:
        for point in read.Scalars(tag):
            found.setdefault(point.step, {})[tag] = point.value
    return found


async def test_trackio_keeps_every_figure(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(data.root / "trackio"))
    await track(data, "trackio")
    await track(data, "trackio")  # a restart goes on with the same run
    program = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as s;"
        "print(json.dumps([s.get_runs('sapo'), s.get_logs('sapo', 'abc')]))"
    )
    read = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    runs, rows = json.loads(read.stdout.splitlines()[-1])
    kept = {row["step"]: {name: row[name] for name in TRACKED[1]} for row in rows}
    assert (len(runs), len(rows), kept) == (1, 6, TRACKED)


async def test_a_tracker_that_dies_is_reported_and_training_continues(
    data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data.root / "tensorboard").write_text("a file where the folder should be", encoding="utf-8")
    tracking = Tracking(ObserveConfig(tracker="tensorboard"), data, run="abc")
    failed: list[str] = []

    async def run() -> None:
        try:
            await tracking.run()
        except Exception as error:
            failed.append(f"{type(error).__name__}: {error}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        while not failed:
            tracking.note("step", STEPS[1])
            await trio.sleep(0.01)
    assert failed == [f"TrackerEnded: the tracker ended with code 1; its log: {data.log.parent}/tracker.log"]
    assert "FileExistsError" in (data.log.parent / "tracker.log").read_text(encoding="utf-8")


def test_metrics_that_wait_too_long_are_dropped(data: DataDir) -> None:
    tracking = Tracking(ObserveConfig(tracker="tensorboard"), data, run="abc")
    for _ in range(WAITING + 5):
        tracking.note("step", STEPS[1])
    assert (tracking.waiting, tracking.missed) == (WAITING, 5)


async def test_without_a_tracker_nothing_is_started(data: DataDir) -> None:
    tracking = Tracking(ObserveConfig(), data, run="abc")
    tracking.note("step", STEPS[1])
    await tracking.run()
    assert (tracking.waiting, sorted(path.name for path in data.root.iterdir())) == (0, ["logs"])


def test_a_tracker_that_is_not_installed_is_refused(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "TRACKIO", extras.Extra("trackio", "trackio", ("no_such_module",)))
    with pytest.raises(SapoError, match="needs trackio; not installed") as caught:
        Tracking(ObserveConfig(tracker="trackio"), data, run="abc")
    assert caught.value.hint == "pip install 'sapo-swarm[trackio]', or observe.tracker = \"none\""


def test_the_tracker_needs_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from sapo_client.observe.tracker import main;"
        f"main(['tensorboard', '--project', 'p', '--run', 'r', '--folder', {str(tmp_path / 'tb')!r}]);"
        "assert 'torch' not in sys.modules"
    )
    line = json.dumps({"step": 1, "figures": {"reward": 0.5}}) + "\n"
    subprocess.run([sys.executable, "-c", program], input=line, text=True, check=True, env=dict(os.environ))
    assert tensorboard_figures(tmp_path / "tb") == {1: {"reward": 0.5}}


def test_lines_are_handed_over_in_order(tmp_path: Path) -> None:
    tracker = TensorboardTracker(tmp_path)
    lines = io.StringIO("".join(json.dumps({"step": n, "figures": {"x": n}}) + "\n" for n in range(3)))
    assert follow(lines, tracker) == 3
    tracker.close()
    assert tensorboard_figures(tmp_path) == {n: {"x": n} for n in range(3)}
