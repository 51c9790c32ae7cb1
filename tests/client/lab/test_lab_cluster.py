"""Runs on a Ray cluster: a run's folder is copied as it changes, and the curve is that of one machine."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.arms import ARMS
from sapo_client.lab.campaign import execute_runs
from sapo_client.lab.cluster.folder import FolderWatch
from sapo_client.lab.cluster.runs import LOCAL, conduct_on_cluster, execute
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.simulate import manifest_of
from sapo_client.lab.store import ExperimentStore, versions


def files(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def timeless(store: ExperimentStore) -> list[CurvePoint]:
    """Return the curve of the only run, without its timings."""
    [curve] = store.curves()
    return [replace(row, seconds=0.0) for row in curve.rows]


def test_a_copy_follows_a_folder_that_grows_and_shrinks(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    run = original / "4-4" / "seed-0"
    watch = FolderWatch(original, run)
    run.mkdir(parents=True)

    def followed() -> bool:
        watch.changes().apply(copy)
        return files(copy) == files(original)

    journal, checkpoint = run / "work" / "journal.jsonl", run / "work" / "step-1" / "state"
    checkpoint.parent.mkdir(parents=True)
    journal.write_text("1\n")
    checkpoint.write_text("weights")
    assert followed()
    with journal.open("a") as file:
        file.write("2\n3\n")
    later = run / "work" / "step-2" / "state"
    later.parent.mkdir()
    later.write_text("others")
    checkpoint.unlink()
    grown = watch.changes()
    assert grown.appended == {"4-4/seed-0/work/journal.jsonl": (2, b"2\n3\n")}
    assert (list(grown.written), grown.removed) == (
        ["4-4/seed-0/work/step-2/state"],
        ("4-4/seed-0/work/step-1/state",),
    )
    grown.apply(copy)
    assert files(copy) == files(original)
    assert not (copy / "4-4/seed-0/work/step-1").exists()
    journal.write_text("1\n")  # a resumed run drops what follows its checkpoint
    assert followed()
    later.with_name("half.writing").write_text("not whole")
    assert watch.changes().written == {}


def test_another_release_on_a_machine_is_named() -> None:
    here = {**versions(), "torch": "1.0"}
    [(reply, _)] = execute({}, "4-4/seed-0", {"arm": "4/4", "seed": 0}, here)
    assert reply["error"] == "a machine of the cluster has another release of torch"


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_found", lambda module: module != "ray")
    with pytest.raises(SapoError, match="a Ray cluster; not installed: ray") as caught:
        conduct_on_cluster(ExperimentStore(tmp_path), [], lambda *_: None, address=LOCAL, jobs=None)
    assert (caught.value.exit_code, caught.value.hint) == (
        ExitCode.CONFIG,
        "pip install 'sapo-swarm[ray]'",
    )


@pytest.mark.long
def test_a_cluster_resumes_what_this_machine_began(
    plan: ExperimentPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    short = replace(plan, rounds=4, checkpoint_every=2, evaluate_every=4)
    run = Run(short, ARMS["4/4"], 0)
    here, there = (ExperimentStore(tmp_path / name) for name in ("here", "there"))
    for store in (here, there):
        store.create(short, lambda: manifest_of(short))
    execute_runs(here, [run], 1, lambda *_: None)

    class KilledError(Exception):
        """The command is killed after three rounds."""

    def killed(_: Run, rounds: int) -> None:
        if rounds == 3:
            raise KilledError

    with pytest.raises(KilledError):
        conduct_on_cluster(there, [run], killed, address=LOCAL, jobs=1)
    assert not there.is_whole(run)
    kept = sorted(path.name for path in there.work(run).rglob("step-*"))
    assert kept == ["step-0000000002"] * short.agents, "the folder here has what a resumed run needs"
    conduct_on_cluster(there, [run], lambda *_: None, address=LOCAL, jobs=1)
    assert timeless(there) == timeless(here)
    assert not there.work(run).exists()
