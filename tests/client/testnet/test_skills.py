"""Conditions under which a skill counts as transferred in a run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sapo_client.testnet.node_record import NodeRecord, RecordedStep, Trend
from sapo_client.testnet.skills import Skills, skills_of, travelled
from sapo_client.testnet.tables import skill_table
from sapo_client.testnet.verdict import RunOutcome, failures, reward_failures, travel_failures

RUNS = json.loads((Path(__file__).parent / "data" / "specialists.json").read_text())
"""Mean reward by family, step by step, of the nodes of real runs."""

near: Any = pytest.approx

AT_FIRST = {"sums": 0.8, "matrices": 0.0}


def record(name: str, families: Sequence[Mapping[str, float]]) -> NodeRecord:
    """Return the record of a node with these rewards, step by step."""
    steps = [
        RecordedStep(number, 0, "t", 0.5 + number / 1000, 4, ("c",), (), each)
        for number, each in enumerate(families, 1)
    ]
    return NodeRecord(name, steps=steps)


def real(run: str) -> tuple[Skills, ...]:
    """Return the skills of a real run's nodes."""
    return tuple(skills_of(record(name, families)) for name, families in RUNS[run].items())


def growing(last: float, own: float = 0.8) -> NodeRecord:
    """Return the record of a node that ends with these rewards."""
    return record("ada", [AT_FIRST] * 20 + [{"sums": own, "matrices": last}] * 10)


def outcome(*records: NodeRecord, **changes: Any) -> RunOutcome:
    """Return a run of nodes that started from different models."""
    run = RunOutcome(
        epochs=1,
        records=records,
        attacks=(),
        ledger=(),
        claim=None,
        files=(),
        dead=(),
        attackers=0,
        starts_differ=True,
    )
    return replace(run, **changes)


def learning(run: RunOutcome) -> list[str]:
    """Return the failed conditions, but for the ledger's: here is none."""
    return [failure for failure in failures(run) if failure != "no reward was claimed"]


def test_skills_are_separated_by_what_a_node_knew_at_first() -> None:
    assert skills_of(growing(0.5, own=0.7)) == Skills(
        "ada", ("matrices",), learnt=Trend(0.0, 0.5), kept=Trend(near(0.8), near(0.7))
    )
    assert skills_of(NodeRecord("bo")) == Skills("bo", (), None, None)


def test_steps_without_a_lacking_family_do_not_count() -> None:
    steps = [{"sums": 0.8}, {"matrices": 0.0}] * 10 + [{"matrices": 0.4}]
    assert skills_of(record("ada", steps)).learnt == Trend(0.0, near(0.08), near(0.08))


def test_transferred_skills_are_averaged_over_nodes_that_lacked_some() -> None:
    skills = (
        Skills("ada", ("a",), Trend(0.0, 0.4, 0.03), None),
        Skills("bo", ("b",), Trend(0.02, 0.2, 0.04), None),
        Skills("cleo", (), None, Trend(0.8, 0.8)),
    )
    assert travelled(skills) == Trend(0.01, near(0.3), near(0.025))
    assert travelled(skills[2:]) is None


def test_a_rise_within_chance_does_not_count() -> None:
    assert [Trend(0.5, end, error=0.05).rose for end in (0.5, 0.59, 0.61)] == [False, False, True]


def test_a_run_in_which_a_skill_was_transferred_succeeds() -> None:
    assert learning(outcome(growing(0.5))) == []


def test_a_run_without_transfer_fails_although_rewards_rose() -> None:
    better = record("ada", [{"sums": n / 30, "matrices": 0.0} for n in range(30)])
    assert learning(outcome(better)) == [
        "no skill travelled: in families of which they knew nothing the nodes' mean reward went from"
        " 0.000 to 0.000, which may be chance"
    ]


def test_a_run_with_transfer_and_worse_answers_fails() -> None:
    worse = NodeRecord(
        "ada", steps=[replace(step, reward=0.5 - step.step / 100) for step in growing(0.5).steps]
    )
    assert learning(outcome(worse)) == reward_failures([worse]) != []


def test_a_family_unknown_to_all_equal_nodes_counts_as_chance() -> None:
    alike = record("ada", [{"sums": 0.8, "matrices": 0.0}] * 30)
    assert travel_failures([skills_of(alike)]) != []
    assert learning(outcome(alike, starts_differ=False)) == []


@pytest.mark.parametrize("run", ["alone", "slow"])
def test_recorded_runs_without_transfer_fail(run: str) -> None:
    """Specialists without each other, and a swarm that came to too few steps on others' texts."""
    assert all(skills.lacked for skills in real(run))
    assert travel_failures(real(run)) != []


def test_the_recorded_run_with_transfer_succeeds() -> None:
    assert travel_failures(real("shared")) == []


def test_the_report_shows_both_kinds_of_families() -> None:
    table = skill_table([skills_of(growing(0.5, own=0.7))])
    assert table.rows == (
        ("ada", "matrices", "0.000", "0.500", "0.000", "0.800", "0.700", "0.000"),
        ("mean", "", "0.000", "0.500", "0.000", "", "", ""),
    )
    assert skill_table([]).rows == ()
