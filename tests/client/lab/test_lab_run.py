"""Runs of tiny real swarms: their mixtures, and that a killed run ends with the same curve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sapo_client.errors import SapoError
from sapo_client.lab.arms import ARMS, Arm, arms_named
from sapo_client.lab.campaign import ENVIRONMENT, execute_runs
from sapo_client.lab.journal import CurvePoint, Journal
from sapo_client.lab.plan import ExperimentPlan, Run, planned
from sapo_client.lab.simulate import manifest_of, settings_of, simulate
from sapo_client.lab.store import ExperimentStore
from sapo_client.learner.losses.external import EXTERNAL_LOSSES
from sapo_client.learner.service import Service
from sapo_client.learner.wire import Message

ALL_ARMS = ("8/0", "2/6", "8/0-dynamic", "curriculum", "oracle", "practise", "imitate", "hybrid")


def timeless(rows: tuple[CurvePoint, ...]) -> list[CurvePoint]:
    """Return the curve without its timings."""
    return [replace(row, seconds=0.0) for row in rows]


@pytest.fixture(scope="module")
def store(plan: ExperimentPlan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExperimentStore]:
    """Return a finished experiment of three arms, run by two workers."""
    made = ExperimentStore(tmp_path_factory.mktemp("experiment"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        made.create(plan, lambda: manifest_of(plan))
        told: dict[str, int] = {}
        execute_runs(
            made,
            [Run(plan, arm, 0) for arm in arms_named(list(ALL_ARMS))],
            2,
            lambda run, n: told.update({run.name: n}),
        )
        assert told == {Run(plan, ARMS[name], 0).name: plan.rounds for name in ALL_ARMS}
        yield made


def rows_of(store: ExperimentStore, arm: str) -> tuple[CurvePoint, ...]:
    [curve] = [curve for curve in store.curves() if curve.run.arm.name == arm]
    return curve.rows


def test_every_agent_has_every_round(store: ExperimentStore, plan: ExperimentPlan) -> None:
    assert [curve.run.arm.name for curve in store.curves()] == list(ALL_ARMS)
    for curve in store.curves():
        places = [(row.round, row.agent) for row in curve.rows]
        assert places == [(number, agent) for number in range(1, 13) for agent in (0, 1)]
        evaluated = [row.round for row in curve.rows if row.held_out is not None and row.agent == 0]
        assert evaluated == [1, 5, 10, 12]


def test_external_groups_per_arm_follow_its_mixture(store: ExperimentStore) -> None:
    assert {row.external for row in rows_of(store, "8/0")} == {0}
    shared = [row.external for row in rows_of(store, "2/6")]
    assert shared[:2] == [0, 0], "nobody has anything to share before the first round"
    assert max(shared) <= 6
    assert sum(shared) > len(shared)
    tokens = {arm: sum(row.generated_tokens for row in rows_of(store, arm)) for arm in ALL_ARMS}
    assert tokens["2/6"] < tokens["8/0"] < tokens["8/0-dynamic"]


def test_arms_of_the_papers_mixture_have_each_loss_of_others_text(
    plan: ExperimentPlan, tmp_path: Path
) -> None:
    def loss(arm: Arm) -> str:
        return settings_of(Run(plan, arm, 0), 0, tmp_path).external_loss

    mixtures = [arm for name, arm in ARMS.items() if name.startswith("4/4")]
    assert {(arm.local, arm.external, arm.sampler) for arm in mixtures} == {(4, 4, "uniform")}
    assert sorted(map(loss, mixtures)) == sorted(EXTERNAL_LOSSES)
    assert {loss(arm) for arm in ARMS.values() if arm not in mixtures} == {"reinforce"}


def test_arms_that_practise_or_imitate_reinforce_no_text_of_others(store: ExperimentStore) -> None:
    for arm in ("practise", "imitate", "hybrid", "oracle", "curriculum"):
        rows = rows_of(store, arm)
        assert {row.external for row in rows} == {0}
        assert any(row.practised for row in rows) == (arm in ("practise", "hybrid"))
        assert any(row.demonstrations for row in rows) == (arm in ("imitate", "hybrid", "oracle"))


def test_evaluation_seeds_are_shared_between_arms_only(
    plan: ExperimentPlan, store: ExperimentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One shared draw would shift all means together, hidden from intervals over seeds."""
    seen: list[int] = []
    evaluate = Service.evaluate

    def noted(service: Service, prompts: list[str], temperature: float, seed: int) -> Message:
        if temperature:
            seen.append(seed)
        return evaluate(service, prompts, temperature, seed)

    monkeypatch.setattr(Service, "evaluate", noted)
    drawn = {}
    for arm, seed in (("8/0", 0), ("2/6", 0), ("8/0", 1)):
        seen.clear()
        run = Run(replace(plan, rounds=2), ARMS[arm], seed)
        simulate(run, store.manifest(), tmp_path / run.name, lambda _round: None)
        drawn[arm, seed] = sorted(seen)
    assert drawn["8/0", 0] == drawn["2/6", 0]
    every = drawn["8/0", 0] + drawn["8/0", 1]
    assert len(set(every)) == len(every) == 2 * 2 * 2  # seeds, agents, rounds


def test_without_sharing_the_batch_is_the_own_sample(store: ExperimentStore) -> None:
    for row in rows_of(store, "8/0"):
        assert row.batch == pytest.approx(row.local)


def test_resampling_changes_the_batch_and_not_the_own_reward(store: ExperimentStore) -> None:
    rows = rows_of(store, "8/0-dynamic")
    assert sum(row.batch for row in rows) > sum(row.local for row in rows) * 1.05


@pytest.mark.long
def test_a_swarm_with_many_messages_in_a_round_still_receives_them(
    plan: ExperimentPlan, tmp_path: Path
) -> None:
    """Three times five hundred groups in two seconds are more than a connection may bring at least."""
    busy = replace(plan, agents=3, rounds=3, tasks=500, completions=2)
    rows = simulate(Run(busy, ARMS["4/4"], 0), manifest_of(busy), tmp_path, lambda _: None)
    heard = {(row.round, row.agent): row.received_bytes > 0 for row in rows}
    assert heard == dict.fromkeys(((round_, agent) for round_ in (1, 2, 3) for agent in range(3)), True)


def test_a_finished_run_is_not_repeated(store: ExperimentStore, plan: ExperimentPlan) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("rounds.jsonl")}
    execute_runs(store, [Run(plan, ARMS["8/0"], 0)], 1, lambda _run, _rounds: None)
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("rounds.jsonl")} == before
    assert list(store.root.rglob("work")) == []


def test_a_folder_holds_one_experiment(store: ExperimentStore, plan: ExperimentPlan) -> None:
    store.create(plan, lambda: manifest_of(plan))
    with pytest.raises(SapoError, match="another plan"):
        store.create(replace(plan, rounds=13), lambda: manifest_of(plan))
    assert store.plan() == plan


DYING = """
import os, signal, sys
from pathlib import Path
from sapo_client.lab.arms import ARMS
from sapo_client.lab.plan import Run
from sapo_client.lab.simulate import simulate
from sapo_client.lab.store import ExperimentStore

store = ExperimentStore(Path(sys.argv[1]))
run = Run(store.plan(), ARMS[sys.argv[2]], 0)

def live(done):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

simulate(run, store.manifest(), store.work(run), live)
"""
"""A run that is killed at the end of a round; some agents may already be in the next one."""


@pytest.mark.long
def test_a_killed_run_continues_to_the_same_curve(
    store: ExperimentStore, plan: ExperimentPlan, tmp_path: Path
) -> None:
    """Killed before its first checkpoint, between two, and once more while it is replayed."""
    killed, run = ExperimentStore(tmp_path), Run(plan, ARMS["2/6"], 0)
    killed.create(plan, store.manifest)
    for last_round, kept in ((3, 3), (10, 10), (1, 8)):
        command = [sys.executable, "-c", DYING, str(tmp_path), run.arm.name, str(last_round)]
        done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert [len(journal.rows()) for journal in journals(killed, run)] == [kept, kept]
    execute_runs(killed, [run], 1, lambda _run, _rounds: None)
    assert timeless(rows_of(killed, "2/6")) == timeless(rows_of(store, "2/6"))


def journals(store: ExperimentStore, run: Run) -> list[Journal]:
    return [Journal(store.work(run) / f"agent-{number}/journal.jsonl") for number in range(run.plan.agents)]


@pytest.mark.long
def test_a_worker_killed_at_any_point_leaves_a_run_that_can_be_resumed(
    store: ExperimentStore, plan: ExperimentPlan, tmp_path: Path
) -> None:
    """It is killed from outside after a round; on a busy machine it may have finished by then."""
    killed, run = ExperimentStore(tmp_path), Run(plan, ARMS["8/0-dynamic"], 0)
    killed.create(plan, store.manifest)
    command = [sys.executable, "-m", "sapo_client.lab.worker", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **ENVIRONMENT}, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps({"arm": run.arm.name, "seed": 0}) + "\n")
        worker.stdin.flush()
        assert [json.loads(worker.stdout.readline()) for _ in range(5)] == [{"round": n} for n in range(1, 6)]
        worker.send_signal(signal.SIGKILL)
    execute_runs(killed, [run], 1, lambda _run, _rounds: None)
    assert timeless(rows_of(killed, run.arm.name)) == timeless(rows_of(store, run.arm.name))


def test_a_journal_with_another_batch_is_refused(
    plan: ExperimentPlan, store: ExperimentStore, tmp_path: Path
) -> None:
    run = Run(replace(plan, rounds=4), ARMS["8/0"], 0)
    simulate(run, store.manifest(), tmp_path, lambda _round: None)
    path = tmp_path / "agent-1/journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["calls"][0][0][0] += "!"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SapoError, match="agent 1's batch of step 2"):
        simulate(run, store.manifest(), tmp_path, lambda _round: None)


def test_a_short_journal_is_refused(plan: ExperimentPlan, store: ExperimentStore, tmp_path: Path) -> None:
    run = Run(replace(plan, rounds=4), ARMS["8/0"], 0)
    simulate(run, store.manifest(), tmp_path, lambda _round: None)
    path = tmp_path / "agent-0/journal.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SapoError, match="shorter than its checkpoint"):
        simulate(run, store.manifest(), tmp_path, lambda _round: None)


@pytest.mark.long
def test_a_missing_model_is_an_error(plan: ExperimentPlan, tmp_path: Path, store: ExperimentStore) -> None:
    bad = replace(plan, model=str(tmp_path / "nowhere"))
    other = ExperimentStore(tmp_path / "experiment")
    other.create(bad, lambda: store.manifest())
    with pytest.raises(SapoError, match="cannot read the configuration of the model"):
        execute_runs(other, [Run(bad, ARMS["8/0"], 0)], 1, lambda _run, _rounds: None)


def test_presets_and_arms_are_named(plan: ExperimentPlan) -> None:
    assert planned("quick", rounds=7, agents=None).rounds == 7
    with pytest.raises(SapoError, match="no preset 'slow'"):
        planned("slow")
    with pytest.raises(SapoError, match="no arm '9/0'"):
        arms_named(["8/0", "9/0"])
    with pytest.raises(SapoError, match="no device 'tpu'"):
        planned("quick", device="tpu")
    assert ExperimentPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
