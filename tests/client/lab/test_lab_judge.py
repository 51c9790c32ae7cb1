"""The judge's questions: answered once by a real node, and scored again from its event file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest
import trio
from support.nodes import PATIENCE_SECONDS, Home, manifest_of
from support.weekday_policy import FAMILY
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_client.errors import SapoError
from sapo_client.lab.judge import Candidate, JudgeResult, _candidate, compare, examine
from sapo_client.lab.plan import ExperimentPlan
from sapo_client.lab.statistics import Estimate
from sapo_client.node.training.judge_client import question
from sapo_client.observe.plain import JSON
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.epochs import beacon
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.suites.catalogue import suite

STEPS = 6


@pytest.fixture(scope="module")
def home(plan: ExperimentPlan, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Return a node that answered after every second step."""
    manifest = manifest_of(suite("nano", [FAMILY]))
    made = Home(tmp_path_factory.mktemp("judged"), 1, manifest, Path(plan.model), judge_every=2)

    async def live() -> int:
        with trio.fail_after(PATIENCE_SECONDS):
            return await made.node(MemoryHub(), steps=STEPS).run()

    assert trio.run(live) == 0
    return made


@pytest.fixture
def diary(home: Home, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies the node's directory with a changed answer."""

    def change(step: int, /, **changes: JSON) -> Path:
        events = [dict(event) for event in home.events()]
        for event in events:
            if event["event"] == "judged" and event["step"] == step:
                event.update(changes)
        (tmp_path / "manifest.json").write_text(home.data.manifest.read_text())
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        return tmp_path

    return change


def test_every_second_step_has_a_question_outside_the_tasks_of_rollouts(home: Home) -> None:
    judged = home.events("judged")
    assert [event["step"] for event in judged] == [2, 4, 6]
    assert {event["family"] for event in judged} == {FAMILY}
    manifest, account = home.manifest, home.identity.account
    first = beacon(manifest.swarm_id, 0, b"")
    tasks = {question(manifest, first, account, step) for step in range(1, 100)}
    assert len(tasks) == 99


def test_answers_are_scored_again(home: Home) -> None:
    [candidate] = examine([home.data.root])
    told = tuple(float(str(event["reward"])) for event in home.events("judged"))
    assert candidate == Candidate(home.data.root, told, refused=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": 0.5},
        {"beacon": "00" * 32},
        {"family": "bf"},
        {"answer": "no hex"},
        {"epoch": -1},
        {"account": "0x12"},
    ],
)
def test_an_entry_that_differs_is_refused(
    home: Home, diary: Callable[..., Path], changes: dict[str, JSON]
) -> None:
    [candidate] = examine([diary(4, **changes)])
    told = [float(str(event["reward"])) for event in home.events("judged")]
    assert (candidate.rewards, candidate.refused) == ((told[0], told[2]), 1)


def test_a_refused_entry_ends_the_command_with_an_error(diary: Callable[..., Path]) -> None:
    folder = diary(4, reward=0.5)
    result = CliRunner().invoke(app, ["lab", "judge", "--swarm", str(folder), "--json"])
    assert result.exit_code == 7
    assert json.loads(result.stdout)["nodes"][0]["refused"] == 1


async def test_answers_without_a_verdict_count_as_undecided_and_not_as_refused(home: Home) -> None:
    """The checkers have stopped, which decides as little as a machine that gives them no time."""
    pool = CheckerPool(home.manifest.suite)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        nursery.cancel_scope.cancel()
    candidate = await _candidate(home.manifest, home.data.root, pool)
    assert candidate == Candidate(home.data.root, (), refused=0, undecided=3)


def test_a_second_answer_is_ignored(home: Home, diary: Callable[..., Path]) -> None:
    told = [float(str(event["reward"])) for event in home.events("judged")]
    folder = diary(4, step=2)
    assert examine([folder]) == [Candidate(folder, (told[0], told[2]), refused=0)]


def test_groups_are_compared_after_equally_many_questions() -> None:
    swarm = [Candidate(Path("a"), (1.0, 1.0, 0.0, 0.0), 0), Candidate(Path("b"), (0.0, 1.0), 0)]
    isolated = [Candidate(Path("c"), (0.0, 0.0, 1.0), 0)]
    result = compare(swarm, isolated)
    assert result == JudgeResult(2, result.swarm, Estimate(0.0, None, 1))
    assert result.swarm is not None
    assert astuple(result.swarm) == pytest.approx((0.75, 3.1765, 2))
    assert swarm[0].cumulative(3) == [1.0, 2.0, 2.0]
    assert compare(swarm[:1], []) == JudgeResult(4, Estimate(0.5, None, 1), None)


def test_the_command_shows_both_groups(home: Home, tmp_path: Path) -> None:
    folder, picture = str(home.data.root), tmp_path / "judge.png"
    arguments = ["lab", "judge", "--swarm", folder, "--isolated", folder, "--picture", str(picture)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    right = sum(float(str(event["reward"])) for event in home.events("judged"))
    assert f"swarm: pass@1 {right / 3:.3f} over 1 node, 3 questions each\n" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_node_without_answers_is_an_error(home: Home, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(home.data.manifest.read_text())
    with pytest.raises(SapoError, match="holds no valid answer"):
        examine([tmp_path])
