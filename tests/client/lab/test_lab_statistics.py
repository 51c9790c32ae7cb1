"""Figures, intervals and the page, from hand-made curves."""

from __future__ import annotations

import csv
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from support.curves import curve_point

from sapo_client.errors import SapoError
from sapo_client.lab.arms import ARMS
from sapo_client.lab.initial_models import groups_of
from sapo_client.lab.journal import CurvePoint
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.report import write_report
from sapo_client.lab.simulate import manifest_of
from sapo_client.lab.statistics import (
    Budget,
    Estimate,
    Point,
    budget_of,
    estimate,
    held_out_at,
    oscillation,
    points_of,
    smooth,
    summarise,
    window_of,
)
from sapo_client.lab.store import Curve, ExperimentStore


def row(number: int, agent: int, reward: float, held_out: dict[str, float] | None = None) -> CurvePoint:
    return curve_point(
        round=number,
        agent=agent,
        batch=reward + 0.25,
        local=reward,
        external=2,
        seconds=0.5,
        held_out=held_out,
        greedy=held_out,
        received_bytes=100,
    )


def rows(start: float, rise: float) -> tuple[CurvePoint, ...]:
    """Two agents, three rounds, evaluated in the first and the last."""
    evaluated = {1: {"a": start, "b": 0.0}, 3: {"a": start + rise, "b": 0.5}}
    return tuple(
        row(number, agent, start + rise * (number - 1), evaluated.get(number))
        for number in (1, 2, 3)
        for agent in (0, 1)
    )


PLAN = ExperimentPlan("bundled", "nano", ("calendar_arithmetic",), agents=2, rounds=3)


def curve(arm: str, seed: int, start: float, rise: float) -> Curve:
    return Curve(Run(PLAN, ARMS[arm], seed), rows(start, rise))


def test_points_are_means_and_sums() -> None:
    assert points_of(rows(0.25, 0.125)) == [
        Point(
            round=1,
            batch=0.5,
            local=0.25,
            informative=0.5,
            external=2,
            tokens=10,
            seconds=0.5,
            held_out=0.125,
            greedy=0.125,
            agents=2,
            trained_tokens=8,
            received_bytes=100,
        ),
        Point(
            round=2,
            batch=0.625,
            local=0.375,
            informative=0.5,
            external=2,
            tokens=20,
            seconds=1.0,
            held_out=None,
            greedy=None,
            agents=2,
            trained_tokens=16,
            received_bytes=200,
        ),
        Point(
            round=3,
            batch=0.75,
            local=0.5,
            informative=0.5,
            external=2,
            tokens=30,
            seconds=1.5,
            held_out=0.4375,
            greedy=0.4375,
            agents=2,
            trained_tokens=24,
            received_bytes=300,
        ),
    ]


def test_an_estimate_is_a_mean_and_its_interval() -> None:
    assert estimate([0.5]) == Estimate(0.5, None, 1)
    five = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert astuple(five) == pytest.approx((3.0, 1.9632, 5), abs=1e-3)  # 2.776 x sqrt(2.5 / 5)
    assert five.is_significant
    assert not estimate([-1.0, 1.0, 0.5]).is_significant
    assert not estimate([1.0]).is_significant
    assert estimate([0.0, 1.0] * 20).half_width == pytest.approx(1.96 * 0.5064 / 40**0.5, abs=1e-3)


def test_differences_are_paired_by_seed() -> None:
    """Seeds differ a lot, arms by a tenth in every seed: only the paired difference shows it."""
    curves = [
        curve(arm, seed, 0.2 * seed + more, 0.0)
        for arm, more in (("8/0", 0.0), ("4/4", 0.1))
        for seed in (0, 1, 2)
    ]
    baseline, shared = summarise([*curves, curve("4/4", 7, 0.9, 0.0)]).arms
    assert (baseline.arm, shared.arm, dict(baseline.differences)) == ("8/0", "4/4", {})
    assert shared.values["local"].seeds == 4
    difference = shared.differences["local"]
    assert difference.seeds == 3
    assert difference.mean == pytest.approx(0.1)
    assert difference.is_significant
    unpaired = shared.values["local"].half_width
    assert unpaired is not None
    assert unpaired > 0.1


def test_the_gain_is_the_share_of_the_baselines_total_per_seed() -> None:
    """Batches earn 0.25 more than the own answers: 0.5 and 1 alone, 0.75 and 2 with others."""
    curves = [
        *(curve("8/0", seed, start, 0.0) for seed, start in ((0, 0.25), (1, 0.75))),
        *(curve("4/4", seed, start, 0.0) for seed, start in ((0, 0.5), (1, 1.75))),
    ]
    baseline, shared = summarise(curves).arms
    assert baseline.gain is None
    assert shared.gain == estimate([0.5, 1.0])


def test_a_baseline_of_zero_has_no_gain() -> None:
    curves = [curve("8/0", 0, -0.25, 0.0), curve("4/4", 0, 0.5, 0.0)]
    assert [each.gain for each in summarise(curves).arms] == [None, None]


def test_our_sampler_is_compared_with_the_same_mixture_without_it() -> None:
    curves = [
        *(curve("4/4", seed, 0.25, 0.0) for seed in (0, 1, 2)),
        *(curve("sapo+", seed, 0.25 + 0.125 * seed, 0.0) for seed in (0, 1)),
    ]
    results = summarise(curves)
    assert results.ours["local"] == estimate([0.0, 0.125])
    assert [dict(each.differences) for each in results.arms] == [{}, {}], "there is no baseline"
    assert summarise(curves[:3]).ours == {}


def test_the_budget_is_the_cheapest_runs() -> None:
    cheap, dear = points_of(rows(0.0, 0.0))[:2], points_of(rows(0.0, 0.0))
    assert budget_of([dear, cheap]) == Budget(tokens=20, seconds=1.0)


def test_held_out_is_interpolated_between_evaluations() -> None:
    points = points_of(rows(0.25, 0.125))
    along = [held_out_at(points, tokens, lambda point: point.tokens) for tokens in (5, 10, 15, 20, 30, 99)]
    assert along == [0.125, 0.125, 0.203125, 0.28125, 0.4375, 0.4375]


def test_smoothing_is_the_mean_of_the_last() -> None:
    assert smooth([1.0, 2.0, 3.0, 4.0], 2) == [1.0, 1.5, 2.5, 3.5]
    assert [window_of(rounds) for rounds in (3, 60, 200, 2000)] == [5, 6, 20, 100]
    assert oscillation([0.5] * 40) == 0.0
    assert oscillation([0.0, 1.0] * 20) == 1.0


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    store = ExperimentStore(tmp_path)
    store.create(PLAN, lambda: manifest_of(PLAN))
    with pytest.raises(SapoError, match="no run"):
        write_report(store)
    for arm, start in (("8/0", 0.25), ("4/4", 0.5), ("sapo+", 0.5)):
        for seed in (0, 1):
            found = curve(arm, seed, start + 0.125 * seed, 0.125)
            store.work(found.run).mkdir(parents=True)
            store.finish(found.run, found.rows, 1.0)
    page = write_report(store).read_text(encoding="utf-8")
    assert "| figure | 8/0 (2 seeds) | 4/4 (2 seeds) | sapo+ (2 seeds) |\n" in page
    shared = "0.688 ± 0.794; **+0.250 ± 0.000**"
    assert f"| local | 0.438 ± 0.794 | {shared} | {shared} |\n" in page
    assert "| seconds | 1.5 ± 0.0 | 1.5 ± 0.0; +0.0 ± 0.0 | 1.5 ± 0.0; +0.0 ± 0.0 |\n" in page
    assert "| gain |  | +37 ± 42 % | +37 ± 42 % |\n" in page
    assert "What sapo+ adds to 4/4, seed by seed:\n\n| figure | difference |\n" in page
    assert "| local | +0.000 ± 0.000 |\n" in page
    assert "Equal spending is 30 tokens, or 1.5 seconds, of an agent.\n" in page
    for name in ("rewards.png", "held-out.png"):
        assert f"({name})" in page
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    table = list(csv.DictReader((tmp_path / "rounds.csv").open(encoding="utf-8")))
    assert len(table) == 18
    assert table[0] == {
        **{"arm": "8/0", "seed": "0", "round": "1", "batch": "0.5", "local": "0.25", "informative": "0.5"},
        **{
            "external": "2.0",
            "tokens": "10.0",
            "seconds": "0.5",
            "held_out": "0.125",
            "greedy": "0.125",
            "agents": "2",
            "trained_tokens": "8.0",
            "received_bytes": "100.0",
        },
    }


MIXED = replace(
    PLAN,
    families=("calendar_arithmetic", "binary_matrix", "bf"),
    models=("bundled", "bundled-chatty"),
    knows=(("calendar_arithmetic",), ("binary_matrix",)),
)


def specialist_rows() -> tuple[CurvePoint, ...]:
    """Return two rounds, both evaluated: agent 0 learns the other one's family, agent 1 learns nothing."""
    known = {
        (1, 0): {"calendar_arithmetic": 1.0, "binary_matrix": 0.0, "bf": 0.25},
        (1, 1): {"calendar_arithmetic": 0.0, "binary_matrix": 0.5, "bf": 0.25},
        (2, 0): {"calendar_arithmetic": 1.0, "binary_matrix": 0.5, "bf": 0.25},
        (2, 1): {"calendar_arithmetic": 0.0, "binary_matrix": 0.5, "bf": 0.25},
    }
    return tuple(row(number, agent, 0.5, shares) for (number, agent), shares in known.items())


def test_groups_are_classified_by_the_families_that_initial_models_know() -> None:
    groups = {group.name: group.curve(specialist_rows()) for group in groups_of(MIXED)}
    assert groups == {
        "all agents, own families": [(1, 0.75), (2, 0.75)],
        "all agents, the other half's": [(1, 0.0), (2, 0.25)],
        "all agents, nobody's": [(1, 0.25), (2, 0.25)],
        "from bundled, own families": [(1, 1.0), (2, 1.0)],
        "from bundled, the other half's": [(1, 0.0), (2, 0.5)],
        "from bundled, nobody's": [(1, 0.25), (2, 0.25)],
        "from bundled-chatty, own families": [(1, 0.5), (2, 0.5)],
        "from bundled-chatty, the other half's": [(1, 0.0), (2, 0.0)],
        "from bundled-chatty, nobody's": [(1, 0.25), (2, 0.25)],
    }
    without = replace(MIXED, knows=())
    assert [group.name for group in groups_of(without)] == ["from bundled", "from bundled-chatty"]
    assert groups_of(PLAN) == []


def page_of_specialists(folder: Path) -> str:
    """Write the report of an experiment with one run; return its page."""
    store = ExperimentStore(folder)
    store.create(MIXED, lambda: manifest_of(MIXED))
    run = Run(MIXED, ARMS["4/4"], 0)
    store.work(run).mkdir(parents=True)
    store.finish(run, specialist_rows(), 1.0)
    return write_report(store).read_text(encoding="utf-8")


def test_the_page_separates_results_by_initial_model(tmp_path: Path) -> None:
    page = page_of_specialists(tmp_path)
    assert "agents start from `bundled` and `bundled-chatty`.\n" in page
    assert "| agents, families | 4/4 |\n" in page
    assert "| from bundled, the other half's | 0.000, 0.500 |\n" in page
    assert (tmp_path / "starts.png").read_bytes().startswith(b"\x89PNG")
    table = list(csv.DictReader((tmp_path / "agents.csv").open(encoding="utf-8")))
    assert len(table) == 12
    assert table[7] == {
        **{"arm": "4/4", "seed": "0", "agent": "0", "start": "bundled", "family": "binary_matrix"},
        **{"kind": "the other half's", "round": "2", "tokens": "20", "trained_tokens": "16"},
        **{"seconds": "1.0", "received_bytes": "200", "held_out": "0.5", "greedy": "0.5"},
    }


def test_the_page_names_the_settings_and_explains_every_column_of_its_files(tmp_path: Path) -> None:
    page = page_of_specialists(tmp_path)
    assert "The families are calendar_arithmetic, binary_matrix, bf.\n" in page
    assert "temperature 1; every " in page
    columns = set()
    for file in sorted(tmp_path.glob("*.csv")):
        names = next(csv.reader(file.open(encoding="utf-8")))
        assert f"* `{file.name}` has " in page
        assert f": {', '.join(f'`{name}`' for name in names)}.\n" in page
        columns.update(names)
    explained = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert (len(explained), set(explained)) == (len(columns), columns)


def test_a_folder_without_an_experiment_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="there is no experiment"):
        write_report(ExperimentStore(tmp_path))
