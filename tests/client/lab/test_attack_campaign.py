"""Attack campaigns: their runs, their table from hand-made curves, and the command."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.curves import curve_point
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_client.errors import SapoError
from sapo_client.lab.arms import ARMS
from sapo_client.lab.attackers.campaign import AttackCampaign, campaign_of
from sapo_client.lab.attackers.catalogue import ATTACKS
from sapo_client.lab.attackers.learning import AttackedRuns
from sapo_client.lab.attackers.report import lost_after, write_attack_report
from sapo_client.lab.initial_models import kind_of
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import PRESETS, ExperimentPlan, Run, planned, require_packaged, seeds_of
from sapo_client.lab.simulate import manifest_of
from sapo_client.lab.statistics import estimate
from sapo_client.lab.store import Curve

PLAN = ExperimentPlan("bundled", "nano", ("calendar_arithmetic",), agents=8, rounds=4)


def row(number: int, held_out: float, **changes: object) -> CurvePoint:
    """Return a round of a single agent that was evaluated after it."""
    evaluated = {"calendar_arithmetic": held_out}
    usual = {"round": number, "external": 4, "held_out": evaluated, "greedy": evaluated}
    return curve_point(**{**usual, **changes})


def finish(campaign: AttackCampaign, attack: str | None, arm: str, rows: list[CurvePoint]) -> None:
    """Write a finished run of seed 0."""
    runs = campaign.runs([ARMS["8/0"], ARMS["4/4"]], seeds=range(1))
    (store, plan), *_ = [
        (store, run.plan)
        for store, each in runs
        for run in each
        if (run.plan.attack, run.arm.name) == (attack, arm)
    ]
    store.create(plan, lambda: manifest_of(PLAN))
    run = Run(plan, ARMS[arm], 0)
    store.work(run).mkdir(parents=True)
    store.finish(run, rows, 1.0)


def test_machines_share_the_seeds_of_a_campaign() -> None:
    assert [seeds_of(text) for text in ("5", "0-2", "3-4", "4-4")] == [
        range(5),
        range(3),
        range(3, 5),
        range(4, 5),
    ]


def test_a_campaign_has_every_attack_beside_a_clean_swarm_and_alone(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, PLAN, ("phrase", "sybil-49"), (1, 3))
    runs = campaign.runs([ARMS["8/0"], ARMS["4/4"]], seeds=range(2))
    assert {store.root.name: [run.name for run in each] for store, each in runs} == {
        "clean": ["8-0/seed-0", "4-4/seed-0", "8-0/seed-1", "4-4/seed-1"],
        "phrase-1": ["4-4/seed-0", "4-4/seed-1"],
        "phrase-3": ["4-4/seed-0", "4-4/seed-1"],
        "sybil-49-7": ["4-4/seed-0", "4-4/seed-1"],
    }
    assert [run.plan for _, [run, *_] in runs[1:]] == [
        PLAN.under("phrase", 1),
        PLAN.under("phrase", 3),
        PLAN.under("sybil-49", 7),
    ]


def test_without_named_attacks_every_possible_one_runs(tmp_path: Path) -> None:
    plain = {attack.name for attack, _ in campaign_of(tmp_path, PLAN, (), ()).attacks}
    assert plain == ATTACKS.keys() - {name for name, attack in ATTACKS.items() if attack.needs_text}
    text = replace(PLAN, level="full", families=("bf",))
    assert {attack.name for attack, _ in campaign_of(tmp_path, text, (), ()).attacks} == ATTACKS.keys() - {
        "only-sunday",
        *(name for name, attack in ATTACKS.items() if attack.needs_solutions),
    }


@pytest.mark.parametrize(
    ("names", "attackers", "complaint"),
    [
        (("rain",), (), "no attack 'rain'"),
        (("wrong-steps",), (), "needs families with text"),
        (("pad",), (2, 8), "8 attackers among 8 honest accounts"),
    ],
)
def test_an_impossible_campaign_is_refused(
    names: tuple[str, ...], attackers: tuple[int, ...], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(SapoError, match=complaint):
        campaign_of(tmp_path, PLAN, names, attackers)


def test_the_table_compares_with_alone_and_with_clean(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, PLAN, ("phrase",), (2,))
    with pytest.raises(SapoError, match="there is no experiment"):
        write_attack_report(campaign)
    finish(campaign, None, "4/4", [row(1, 0.25, marks={"phrase": 0.125}), row(2, 0.5, marks={"phrase": 0.0})])
    with pytest.raises(SapoError, match="no run of 8/0"):
        write_attack_report(campaign)
    finish(campaign, None, "8/0", [row(1, 0.25, external=0), row(2, 0.75, external=0)])
    weights = {"honest_weight": 0.5, "attackers_weight": 0.5}
    attacked = [
        row(1, 0.125, attackers=1, marks={"phrase": 0.25}, **weights),
        row(
            2,
            0.25,
            attackers=2,
            marks={"phrase": 0.5},
            examined=16,
            blamed={"R11.1": 1, "R13.1": 1},
            attackers_set_aside=3,
            honest_set_aside=1,
            **{**weights, "attackers_weight": 0.125},
        ),
    ]
    finish(campaign, "phrase", "4/4", attacked)
    page = write_attack_report(campaign).read_text(encoding="utf-8")
    assert "Alone (8/0) reaches 0.500 held out (1 seed).\n" in page
    assert "| clean | 0 | 4/4 | 1 | 0.750 | 0.667 | - | - | - | - | - | - | 0.000 | 0.000 |\n" in page
    figures = "0.375 | 0.333 | 0.375 | 0.062 | 0.312 | 0.375 | 0.125 | 2 | 3.000 | 1.000"
    assert f"| phrase | 2 | 4/4 | 1 | {figures} |\n" in page
    assert f"* **phrase**: {ATTACKS['phrase'].exploits}. Mark: phrase.\n" in page
    assert (tmp_path / "attack.png").read_bytes().startswith(b"\x89PNG")
    table = list(csv.DictReader((tmp_path / "attack.csv").open(encoding="utf-8")))
    columns = ("attack", "share", "success", "chance", "above_chance", "blamed", "lost_after", "set_aside")
    assert [tuple(each[column] for column in columns) for each in table] == [
        ("clean", "0.75", "", "", "", "", "", "0.0"),
        ("phrase", "0.375", "0.375", "0.0625", "0.3125", "0.125", "2", "3.0"),
    ]
    assert (
        "| attack | attackers | arm | seeds | round 1 | round 2 |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| clean | 0 | 4/4 | 1 | 1.000 | 0.667 |\n"
        "| phrase | 2 | 4/4 | 1 | 0.500 | 0.333 |\n\n"
    ) in page
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "learning.csv").read_text(encoding="utf-8").splitlines() == [
        "attack,attackers,arm,seed,round,held_out,alone",
        "clean,0,4/4,0,1,0.25,0.25",
        "clean,0,4/4,0,2,0.5,0.75",
        "phrase,2,4/4,0,1,0.125,0.25",
        "phrase,2,4/4,0,2,0.25,0.75",
    ]


def test_a_campaign_of_which_only_alone_is_finished_is_reported(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, PLAN, ("phrase",), (2,))
    finish(campaign, None, "8/0", [row(1, 0.25), row(2, 0.75)])
    assert "| round " not in write_attack_report(campaign).read_text(encoding="utf-8")
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_shares_by_round_leave_out_what_cannot_be_compared() -> None:
    """Seed 0 of alone has nothing after round 1, and was not evaluated after round 3."""
    plan = replace(PLAN, rounds=3)
    runs = [
        tuple(
            Curve(Run(plan, ARMS[arm], seed), tuple(row(number, each) for number, each in held_out.items()))
            for arm, held_out in (("4/4", ours), ("8/0", alone))
        )
        for seed, (ours, alone) in enumerate(
            [({1: 0.5, 2: 0.25, 3: 0.5}, {1: 0.0, 2: 0.5}), ({1: 0.25, 2: 0.5}, {1: 0.5, 2: 0.5})]
        )
    ]
    group = AttackedRuns(ATTACKS["phrase"], 2, arm="4/4", runs=tuple((ours, alone) for ours, alone in runs))
    assert group.shares() == {1: estimate([0.5]), 2: estimate([0.5, 1.0])}


def test_agents_that_train_alone_have_rounds_of_their_own(tmp_path: Path) -> None:
    """They spend a second in a round, the others two."""
    plan = replace(PLAN, rounds=2)
    campaign = campaign_of(tmp_path, plan, ("phrase",), (2,), alone_rounds=4)
    runs = campaign.runs([ARMS["8/0"], ARMS["4/4"]], seeds=range(1))
    assert {store.root.name: [(run.name, run.plan) for run in each] for store, each in runs} == {
        "alone": [("8-0/seed-0", replace(plan, rounds=4))],
        "clean": [("4-4/seed-0", plan)],
        "phrase-2": [("4-4/seed-0", plan.under("phrase", 2))],
    }
    for attack in (None, "phrase"):
        finish(campaign, attack, "4/4", [row(1, 0.25, seconds=2.0), row(2, 0.75, seconds=2.0)])
    with pytest.raises(SapoError, match="there is no experiment"):
        write_attack_report(campaign)
    alone = [row(number, held_out) for number, held_out in enumerate((0.25, 0.25, 0.5, 1.0), 1)]
    finish(campaign, None, "8/0", alone)
    page = write_attack_report(campaign).read_text(encoding="utf-8")
    assert "Alone (8/0) reaches 0.750 held out after 4 rounds (1 seed).\n" in page
    assert "| clean | 0 | 4/4 | 1 | 2.000 | 0.750 | - | - | - | - | - | - | 0.000 | 0.000 |\n" in page
    assert "| phrase | 2 | 4/4 | 1 | 2.000 | 0.750 |" in page
    assert "| phrase | 2 | 4/4 | 1 | 1.000 | 3.000 |\n" in page, "after rounds 1 and 2"


def test_agents_that_train_alone_have_no_fewer_rounds(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="3 rounds alone beside 4"):
        campaign_of(tmp_path, PLAN, ("phrase",), (2,), alone_rounds=3)


def test_weight_counts_as_lost_only_if_it_stays_low() -> None:
    def rows(*attackers: float | None) -> list[CurvePoint]:
        return [
            row(number, 0.5, honest_weight=None if weight is None else 0.5, attackers_weight=weight)
            for number, weight in enumerate(attackers, 1)
        ]

    assert lost_after(rows(None, 0.5, 0.5)) is None
    assert lost_after(rows(None, 0.5, 0.125, 0.0)) == 3
    assert lost_after(rows(None, 0.5, 0.125, 0.5)) is None, "it came back"
    assert lost_after(rows(0.5, 0.125, 0.25, 0.125)) == 4
    assert lost_after(rows(None, None)) is None, "newcomers have none to lose"


def test_plans_with_attacks_and_starts() -> None:
    mixed = planned("mixed")
    assert [mixed.start_of(agent) for agent in range(8)] == ["bundled", "bundled-chatty"] * 4
    assert [planned("sizes").start_of(agent) for agent in range(4)] == ["bundled-chatty", "bundled-small"] * 2
    attacked = mixed.under("pad", 2)
    assert ExperimentPlan.from_json(json.loads(json.dumps(attacked.to_json()))) == attacked
    specialists = PRESETS["specialists"]
    assert ExperimentPlan.from_json(json.loads(json.dumps(specialists.to_json()))) == specialists
    old = {name: value for name, value in PLAN.to_json().items() if name not in ("models", "knows")}
    assert ExperimentPlan.from_json(old) == PLAN
    assert planned("mixed", model="bundled") == replace(PRESETS["quick"], model="bundled")
    for changes, complaint in (
        ({"attack": "pad"}, "0 attackers and the attack pad"),
        ({"attackers": 2}, "2 attackers and the attack None"),
        ({"attack": "rain", "attackers": 1}, "no attack 'rain'"),
        ({"models": ("bundled", "bundled")}, "are not different models"),
        ({"knows": ((), ())}, "2 lists of known families for 1 initial models"),
    ):
        with pytest.raises(SapoError, match=complaint):
            replace(PLAN, **changes)


def test_an_unknown_initial_model_is_refused() -> None:
    require_packaged("bundled")
    with pytest.raises(SapoError, match="no initial model 'specialist-z'") as caught:
        require_packaged("specialist-z")
    assert caught.value.exit_code == 2


def test_teachers_are_honest_accounts_when_a_share_is_counted(tmp_path: Path) -> None:
    plan = PRESETS["specialists"]
    assert (plan.agents, plan.teachers, plan.honest) == (2, 12, 14)
    [(attack, attackers)] = campaign_of(tmp_path, plan, ("pad",), ()).attacks
    assert (attack.name, attackers) == ("pad", 5)
    [(_, attackers)] = campaign_of(tmp_path, plan, ("pad",), (13,)).attacks
    assert attackers == 13


def test_specialists_know_different_families() -> None:
    plan = PRESETS["specialists"]
    assert {name: kind_of(plan, 0, name) for name in plan.families} == {
        "basic_arithmetic": "own families",
        "fraction_simplification": "own families",
        "propositional_logic": "the other half's",
        "calendar_arithmetic": "the other half's",
        "binary_matrix": "the other half's",
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--attack", "rain"), "no attack 'rain'"),
        (("--attackers", "two"), "'two' are not numbers"),
        (("--arms", "9/0"), "no arm '9/0'"),
        (("--seeds", "four"), "'four' names no seeds"),
        (("--seeds", "0"), "'0' names no seeds"),
        (("--seeds", "4-3"), "'4-3' names no seeds"),
    ],
)
def test_an_invalid_campaign_makes_no_folder(
    options: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["lab", "attack", *options, "--out", str(tmp_path / "none")])
    assert isinstance(result.exception, SapoError)
    assert complaint in result.exception.text
    assert result.exception.exit_code == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.long
def test_a_campaign_is_run_and_reported(plan: ExperimentPlan, tmp_path: Path) -> None:
    options = [
        *("--attack", "pad", "--attackers", "1", "--arms", "4/4", "--seeds", "3-3", "--rounds", "2"),
        *("--agents", "2", "--model", plan.model, "--families", "calendar_arithmetic", "--jobs", "1"),
        *("--held-out", "5"),
    ]
    first = CliRunner().invoke(app, ["lab", "attack", *options, "--out", str(tmp_path), "--json"])
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout) == {"folder": str(tmp_path), "runs": 3, "page": f"{tmp_path}/attack.md"}
    page = (tmp_path / "attack.md").read_text(encoding="utf-8")
    assert "| pad | 1 | 4/4 | 1 | " in page
    assert {path.name for path in tmp_path.glob("*/*/seed-*")} == {"seed-3"}
    plans = [json.loads(path.read_bytes())["plan"] for path in tmp_path.glob("*/experiment.json")]
    assert [each["held_out_per_family"] for each in plans] == [5, 5]
    curves = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")}
    assert len(curves) == 3
    again = CliRunner().invoke(app, ["lab", "attack", *options, "--out", str(tmp_path)])
    assert (again.exit_code, again.stdout) == (0, f"wrote {tmp_path}/attack.md\n")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rounds.jsonl")} == curves
