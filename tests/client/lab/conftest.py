"""A tiny experiment: two agents that guess weekdays."""

from __future__ import annotations

import os
import sys

import pytest
from support.weekday_policy import FAMILY, make_weekday_policy

from sapo_client.lab.plan import ExperimentPlan

SOURCES = os.pathsep.join(path for path in sys.path if path)


@pytest.fixture(autouse=True)
def _children_find_the_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory) -> ExperimentPlan:
    """Twelve rounds of a policy that is right once in seven completions."""
    model = make_weekday_policy(tmp_path_factory.mktemp("policy") / "weekdays")
    return ExperimentPlan(
        model=str(model),
        level="nano",
        families=(FAMILY,),
        agents=2,
        rounds=12,
        demonstration_steps=2,
        completions=4,
        max_new_tokens=6,
        evaluate_every=5,
        held_out_per_family=12,
        rounds_per_epoch=3,
        checkpoint_every=4,
    )
