"""One learner with promotion and canary beside attackers who know both."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_client.errors import SapoError
from sapo_client.lab.attackers.compose import DIGITS
from sapo_client.lab.attackers.guarded import (
    MISLED,
    PLANTED,
    RIGHT,
    TACTICS,
    GuardRun,
    Seen,
    guard,
)
from sapo_client.lab.attackers.guarded_learner import GuardPlan, TaughtText
from sapo_client.lab.worked.solutions import worked_solution
from sapo_verification.suites.catalogue import family
from sapo_verification.tasks.answers import extract
from sapo_verification.tasks.generators import derive
from sapo_verification.tasks.scorers import score

PLAN = GuardPlan(rounds=2, canary=2, steps=1, per_step=4, texts=4, every=1, held_out=2)
FAMILIES = tuple(family(name, "worked") for name in (PLAN.taught, PLAN.target))

BEFORE = Seen(promoted=0, to_check=4, every=4)
EARLY, LATE = Seen(1, to_check=3, every=4), Seen(1, to_check=2, every=4)


@pytest.mark.parametrize(
    ("name", "lessons"),
    [
        ("honest", (RIGHT, RIGHT, RIGHT)),
        ("ruin", (MISLED, MISLED, MISLED)),
        ("wait", (RIGHT, MISLED, MISLED)),
        ("pulse", (RIGHT, MISLED, RIGHT)),
        ("plant", (RIGHT, PLANTED, PLANTED)),
        ("early", (PLANTED, RIGHT, RIGHT)),
    ],
)
def test_a_tactic_follows_promotions_and_checks(name: str, lessons: tuple[str, str, str]) -> None:
    draw = random.Random(0)
    assert tuple(TACTICS[name](seen, draw) for seen in (BEFORE, EARLY, LATE)) == lessons


def test_half_of_what_erodes_is_right() -> None:
    draw = random.Random(0)
    found = Counter(TACTICS["erode"](BEFORE, draw) for _ in range(1000))
    assert found[RIGHT] + found[MISLED] == 1000
    assert 450 < found[RIGHT] < 550


class NotedGuard(GuardRun):
    """A run of which the test reads what is shown."""

    def shown(self, number: int) -> list[TaughtText]:
        return self._texts(number)


@pytest.mark.parametrize("tactic", ["honest", "ruin"])
def test_only_attackers_mislead_and_only_in_the_target(tmp_path: Path, tactic: str) -> None:
    """All answers are right; the steps of the target are a similar question's."""
    run = NotedGuard(replace(PLAN, tactic=tactic, texts=12), tmp_path)
    texts = run.shown(1)
    assert Counter(each.account for each in texts) == dict.fromkeys({each.account for each in texts}, 12)
    misled: Counter[tuple[bool, int]] = Counter()
    for each in texts:
        of = FAMILIES[each.family]
        item = derive(of, each.task.seed)
        assert score(of, extract(of, each.completion), item.entry) == 1.0
        attacker = int.from_bytes(bytes(each.account), "big") > PLAN.honest
        misled[attacker, each.family] += worked_solution(of, item) != each.completion.decode()
    wrong = {pair for pair, count in misled.items() if count}
    assert wrong == ({(True, 1)} if tactic == "ruin" else set())


def test_a_planted_text_is_a_right_one_behind_a_false_sum(tmp_path: Path) -> None:
    run = NotedGuard(PLAN, tmp_path)
    shown = run._shown(run._attackers[0], 1, PLANTED)
    right = worked_solution(FAMILIES[1], derive(FAMILIES[1], shown.task.seed))
    assert shown.completion.decode() == f"{DIGITS}{right}"


def test_a_run_is_the_same_again(tmp_path: Path) -> None:
    one, two = (guard(replace(PLAN, tactic="ruin"), tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert [each.round for each in one] == [0, 1, 2]
    assert {name for each in one for name in each.held_out} == {PLAN.taught, PLAN.target}


def test_the_command_shows_its_runs_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sapo_client.lab.attackers.guarded_learner.GuardPlan", lambda **given: replace(PLAN, **given)
    )
    out = tmp_path / "guard"
    asked = ["lab", "guard", "--tactic", "honest", "--seeds", "1", "--json", "--out", str(out)]
    first = CliRunner().invoke(app, asked)
    assert first.exit_code == 0, first.output
    rows = json.loads(first.stdout)["rows"]
    assert [(row["tactic"], row["seed"], row["round"]) for row in rows] == [
        ("honest", 0, n) for n in range(3)
    ]
    assert (out / "guard.csv").read_text().count("\n") == 4
    before = (out / "honest" / "seed-0" / "evaluations.jsonl").stat().st_mtime_ns
    assert CliRunner().invoke(app, asked).stdout == first.stdout
    assert (out / "honest" / "seed-0" / "evaluations.jsonl").stat().st_mtime_ns == before
    other = CliRunner().invoke(app, [*asked, "--rounds", "1"])
    assert isinstance(other.exception, SapoError)
    assert "another plan" in other.exception.text


def test_an_unknown_tactic_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["lab", "guard", "--tactic", "rain", "--out", str(tmp_path / "none")])
    assert isinstance(found.exception, SapoError)
    assert found.exception.text == "there is no tactic 'rain'"
    assert not (tmp_path / "none").exists()
