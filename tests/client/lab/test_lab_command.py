"""`sapo lab run` and `report` as commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sapo_client.cli.app import app
from sapo_client.errors import SapoError
from sapo_client.lab.plan import ExperimentPlan
from sapo_client.lab.store import ExperimentStore


@pytest.mark.long
def test_an_experiment_is_run_and_reported(plan: ExperimentPlan, tmp_path: Path) -> None:
    out = tmp_path / "experiment"
    options = ["--arms", "8/0,4/4", "--seeds", "1", "--rounds", "2", "--agents", "2", "--model", plan.model]
    result = CliRunner().invoke(app, ["lab", "run", *options, "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"folder": str(out), "runs": ["8-0/seed-0", "4-4/seed-0"]}
    assert [curve.run.name for curve in ExperimentStore(out).curves()] == ["8-0/seed-0", "4-4/seed-0"]
    result = CliRunner().invoke(app, ["lab", "report", str(out)])
    assert (result.exit_code, result.stdout) == (0, f"wrote {out}/report.md\n")
    page = (out / "report.md").read_text(encoding="utf-8")
    assert page.startswith("# Does sharing help?\n\n2 agents, 2 rounds, 8 completions per group;\n")
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert [arm["arm"] for arm in report["arms"]] == ["8/0", "4/4"]


def test_an_unknown_arm_makes_no_folder(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["lab", "run", "--arms", "9/0", "--out", str(tmp_path / "none")])
    assert isinstance(result.exception, SapoError)
    assert result.exception.exit_code == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.long
def test_options_override_a_preset(tmp_path: Path) -> None:
    """Only the model is refused, at the first run: the folder then holds the plan."""
    from sapo_client.lab.plan import PRESETS

    options = [
        *("--arms", "8/0", "--seeds", "1", "--rounds", "3", "--agents", "2", "--model", "no/such/folder"),
        *("--families", "base_conversion,bf", "--level", "full", "--learning-rate", "2e-5"),
        *("--temperature", "1.5", "--bfloat16", "--out", str(tmp_path)),
    ]
    result = CliRunner().invoke(app, ["lab", "run", *options])
    assert isinstance(result.exception, SapoError)
    assert "the model 'no/such/folder'" in result.exception.text
    assert ExperimentStore(tmp_path).plan() == replace(
        PRESETS["quick"],
        model="no/such/folder",
        level="full",
        families=("base_conversion", "bf"),
        agents=2,
        rounds=3,
        learning_rate=2e-5,
        temperature=1.5,
        bfloat16=True,
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--families", "bf,chess"), "no task family 'chess'"),
        (("--level", "easy"), "no level 'easy'"),
        (("--learning-rate", "0"), "zero"),
        (("--temperature", "0"), "zero"),
    ],
)
def test_an_invalid_plan_is_refused_before_anything_is_written(
    options: tuple[str, str], complaint: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["lab", "run", *options, "--out", str(tmp_path / "none")])
    assert isinstance(result.exception, SapoError)
    assert complaint in result.exception.text
    assert result.exception.exit_code == 2
    assert result.exception.hint
    assert not (tmp_path / "none").exists()


def test_the_paper_preset_has_the_settings_of_the_paper() -> None:
    from sapo_client.lab.arms import ARMS
    from sapo_client.lab.plan import PRESETS

    paper = PRESETS["paper"]
    assert (paper.agents, paper.rounds, paper.completions, len(paper.families)) == (8, 2000, 8, 9)
    assert (paper.model, paper.device, paper.temperature) == ("Qwen/Qwen2.5-0.5B-Instruct", "cuda", 1.0)
    assert {arm.local + arm.external for arm in ARMS.values()} == {8}


def test_the_quick_preset_starts_where_success_is_rare() -> None:
    from sapo_client.lab.plan import PRESETS
    from sapo_client.learner.policy import BUNDLED_CHATTY
    from sapo_verification.suites.catalogue import NANO_DEFAULT

    assert PRESETS["quick"] == ExperimentPlan(
        model=BUNDLED_CHATTY,
        level="nano",
        families=NANO_DEFAULT,
        agents=8,
        rounds=40,
        learning_rate=5e-5,
        evaluate_every=5,
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_a_gpu(plan: ExperimentPlan, tmp_path: Path) -> None:
    options = ["--arms", "4/4", "--seeds", "1", "--rounds", "2", "--agents", "2", "--device", "cuda"]
    result = CliRunner().invoke(
        app, ["lab", "run", *options, "--model", plan.model, "--out", str(tmp_path), "--jobs", "1"]
    )
    assert result.exit_code == 0, result.output
