"""A swarm of two specialists whose candidates are compared and promoted, and that is resumed in between."""

from dataclasses import replace
from pathlib import Path

import pytest

from sapo_client.lab.arms import ARMS
from sapo_client.lab.journal import CurvePoint, Journal
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.simulate import manifest_of, simulate
from sapo_client.learner.service import Service
from sapo_client.learner.wire import Message
from sapo_client.node.training import family_evidence, promotion, rehearsal

PLAN = ExperimentPlan(
    model="specialist-a",
    models=("specialist-a", "specialist-b"),
    level="worked",
    families=("fraction_simplification", "binary_matrix"),
    agents=2,
    rounds=9,
    completions=2,
    tasks=16,
    max_new_tokens=96,
    texts_per_step=1,
    demonstration_steps=20,
    evaluate_every=1,
    held_out_per_family=4,
    rounds_per_epoch=3,
    checkpoint_every=7,
)


@pytest.fixture(autouse=True)
def _any_difference_promotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the third comparison the first that promotes, with any result."""
    monkeypatch.setattr(promotion, "FALSE_PROMOTIONS", 1e9)
    monkeypatch.setattr(family_evidence, "LOSS_STAKES", (0.0,))  # so no family is ever found to be lost,
    monkeypatch.setattr(family_evidence, "KNOWN", 2.0)  # and none has to be kept
    monkeypatch.setattr(promotion, "FAMILY_TASKS", 96)
    monkeypatch.setattr(rehearsal, "MAX_TASKS", 16)


def curve(folder: Path, rounds: int) -> list[CurvePoint]:
    """Train for so many rounds, from the last checkpoint in the folder on; return the rows without times."""
    plan = replace(PLAN, rounds=rounds)
    rows = simulate(Run(plan, ARMS["imitate"], 0), manifest_of(plan), folder, lambda _: None)
    return [replace(row, seconds=0.0) for row in rows]


@pytest.mark.long
def test_a_run_resumed_between_two_comparisons_has_the_same_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of comparisons are in the journal; what is replayed compares and promotes nothing again."""
    promoted: list[int] = []
    promote = Service.promote

    def noted(service: Service) -> Message:
        promoted.append(service.about()["step"])
        return promote(service)

    monkeypatch.setattr(Service, "promote", noted)
    whole = curve(tmp_path / "whole", PLAN.rounds)
    entries = list(Journal(tmp_path / "whole/agent-0/journal.jsonl").rewind(PLAN.rounds))
    assert [entry.report.has_candidate for entry in entries] == [False] * 3 + [True] * 3 + [False] * 3
    judged = [len(entry.report.step_values) - entry.row.demonstrations for entry in entries]
    assert min(judged) >= 0
    assert sum(judged) > 0, "steps of the family that it knows are judged beside those that it is shown"
    assert promoted == [6, 7], "one before the checkpoint, the other right after it"
    curve(tmp_path / "resumed", PLAN.checkpoint_every)
    assert promoted == [6, 7] * 2
    assert curve(tmp_path / "resumed", PLAN.rounds) == whole
    assert promoted == [6, 7] * 2 + [7]
