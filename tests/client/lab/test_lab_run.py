"""Runs of real swarms, tiny ones: what is mixed, and that a killed run comes to the same curve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sapo_client.errors import SapoError
from sapo_client.lab.campaign import ENVIRONMENT, conduct
from sapo_client.lab.journal import Journal, Row
from sapo_client.lab.plan import ARMS, Plan, Run, arms_named, planned
from sapo_client.lab.simulate import manifest_of, simulate
from sapo_client.lab.store import Store

ALL_ARMS = ("8/0", "2/6", "8/0-dynamic")


def timeless(rows: tuple[Row, ...]) -> list[Row]:
    """The curve without the machine's part in it."""
    return [replace(row, seconds=0.0) for row in rows]


@pytest.fixture(scope="module")
def store(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A whole experiment of three arms, two workers at a time."""
    made = Store(tmp_path_factory.mktemp("experiment"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        made.create(plan, lambda: manifest_of(plan))
        told: dict[str, int] = {}
        conduct(
            made,
            [Run(plan, arm, 0) for arm in arms_named(list(ALL_ARMS))],
            2,
            lambda run, n: told.update({run.name: n}),
        )
        assert told == {Run(plan, ARMS[name], 0).name: plan.rounds for name in ALL_ARMS}
        yield made


def rows_of(store: Store, arm: str) -> tuple[Row, ...]:
    [curve] = [curve for curve in store.curves() if curve.run.arm.name == arm]
    return curve.rows


def test_every_agent_has_every_round(store: Store, plan: Plan) -> None:
    assert [curve.run.arm.name for curve in store.curves()] == list(ALL_ARMS)
    for curve in store.curves():
        places = [(row.round, row.agent) for row in curve.rows]
        assert places == [(number, agent) for number in range(1, 13) for agent in (0, 1)]
        evaluated = [row.round for row in curve.rows if row.held_out is not None and row.agent == 0]
        assert evaluated == [1, 5, 10, 12]


def test_arms_mix_as_they_say(store: Store) -> None:
    assert {row.external for row in rows_of(store, "8/0")} == {0}
    shared = [row.external for row in rows_of(store, "2/6")]
    assert shared[:2] == [0, 0], "nobody has anything to share before the first round"
    assert max(shared) <= 6
    assert sum(shared) > len(shared)
    tokens = {arm: sum(row.generated_tokens for row in rows_of(store, arm)) for arm in ALL_ARMS}
    assert tokens["2/6"] < tokens["8/0"] < tokens["8/0-dynamic"]


def test_alone_the_batch_is_what_was_sampled(store: Store) -> None:
    for row in rows_of(store, "8/0"):
        assert row.batch == pytest.approx(row.local)


def test_resampling_shows_in_the_batch_and_not_in_the_own_reward(store: Store) -> None:
    rows = rows_of(store, "8/0-dynamic")
    assert sum(row.batch for row in rows) > sum(row.local for row in rows) * 1.05


def test_what_is_whole_is_not_done_again(store: Store, plan: Plan) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("rounds.jsonl")}
    conduct(store, [Run(plan, ARMS["8/0"], 0)], 1, lambda _run, _rounds: None)
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("rounds.jsonl")} == before
    assert list(store.root.rglob("work")) == []


def test_a_folder_holds_one_experiment(store: Store, plan: Plan) -> None:
    store.create(plan, lambda: manifest_of(plan))
    with pytest.raises(SapoError, match="another plan"):
        store.create(replace(plan, rounds=13), lambda: manifest_of(plan))
    assert store.plan() == plan


def test_a_killed_run_comes_to_the_same_curve(store: Store, plan: Plan, tmp_path: Path) -> None:
    """Killed in the round after the third, after the tenth, and before it has begun again."""
    killed = Store(tmp_path)
    killed.create(plan, lambda: store.manifest())
    for last_round in (3, 10, 1):
        kill_after(killed, "2/6", last_round)
    run = Run(plan, ARMS["2/6"], 0)
    assert not killed.is_whole(run)
    steps = [len(Journal(killed.work(run) / f"agent-{number}/journal.jsonl").rows()) for number in (0, 1)]
    assert min(steps) >= 8, "the checkpoint of the eighth round held"
    conduct(killed, [run], 1, lambda _run, _rounds: None)
    assert timeless(rows_of(killed, "2/6")) == timeless(rows_of(store, "2/6"))


def kill_after(store: Store, arm: str, last_round: int) -> None:
    """Does a run in a worker, and kills it wherever it is when it has told of a round."""
    command = [sys.executable, "-m", "sapo_client.lab.worker", str(store.root)]
    environment = {**os.environ, **ENVIRONMENT}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps({"arm": arm, "seed": 0}) + "\n")
        worker.stdin.flush()
        for line in worker.stdout:
            told: dict[str, Any] = json.loads(line)
            if told["round"] == last_round:
                break
        worker.send_signal(signal.SIGKILL)


def test_a_journal_of_another_road_is_refused(plan: Plan, store: Store, tmp_path: Path) -> None:
    run = Run(replace(plan, rounds=4), ARMS["8/0"], 0)
    simulate(run, store.manifest(), tmp_path, lambda _round: None)
    path = tmp_path / "agent-1/journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["calls"][0][0][0] += "!"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SapoError, match="agent 1's batch of step 2"):
        simulate(run, store.manifest(), tmp_path, lambda _round: None)


def test_a_short_journal_is_refused(plan: Plan, store: Store, tmp_path: Path) -> None:
    run = Run(replace(plan, rounds=4), ARMS["8/0"], 0)
    simulate(run, store.manifest(), tmp_path, lambda _round: None)
    path = tmp_path / "agent-0/journal.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SapoError, match="shorter than its checkpoint"):
        simulate(run, store.manifest(), tmp_path, lambda _round: None)


def test_a_missing_model_is_told(plan: Plan, tmp_path: Path, store: Store) -> None:
    bad = replace(plan, model=str(tmp_path / "nowhere"))
    other = Store(tmp_path / "experiment")
    other.create(bad, lambda: store.manifest())
    with pytest.raises(SapoError, match="cannot load the model"):
        conduct(other, [Run(bad, ARMS["8/0"], 0)], 1, lambda _run, _rounds: None)


def test_presets_and_arms_are_named(plan: Plan) -> None:
    assert planned("quick", rounds=7, agents=None).rounds == 7
    with pytest.raises(SapoError, match="no preset 'slow'"):
        planned("slow")
    with pytest.raises(SapoError, match="no arm '9/0'"):
        arms_named(["8/0", "9/0"])
    with pytest.raises(SapoError, match="no device 'tpu'"):
        planned("quick", device="tpu")
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
