"""Checkpoints whose ``meta.json`` is not what this release writes."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.model_folders import one_step
from support.policies import make_policy_folder

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.checkpoint import WeightsNotFinite
from sapo_client.learner.loading.identity import checkpoint_model
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(str(folder), tmp_path / "run", max_new_tokens=8, checkpoint_share=0.0)


def saved(settings: LearnerSettings, steps: int) -> Path:
    """Write a checkpoint after each step; return the newest one's ``meta.json``."""
    service = Service(settings)
    for _ in range(steps):
        one_step(service)
        service.call("checkpoint", {})
    return sorted((settings.directory / "checkpoints").glob("step-*"))[-1] / "meta.json"


def without(meta: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key != name}


@pytest.mark.parametrize(
    "content",
    [
        lambda _: [],
        lambda _: None,
        lambda meta: without(meta, "steps"),
        lambda meta: without(meta, "model"),
        lambda meta: {**meta, "steps": "2"},
        lambda meta: {**meta, "samples": None},
        lambda meta: {**meta, "baselines": [1]},
        lambda meta: {**meta, "yardstick": {"counted": 1}},
        lambda meta: {**meta, "format": "1"},
    ],
)
def test_a_meta_that_is_json_and_no_meta_is_skipped_as_damaged(
    settings: LearnerSettings, content: Any
) -> None:
    meta = saved(settings, 2)
    meta.write_text(json.dumps(content(json.loads(meta.read_text()))))
    assert checkpoint_model(settings.directory / "checkpoints") == (settings.model, 0)
    assert Service(settings).about()["step"] == 1
    folder = settings.directory / "checkpoints"
    assert sorted(each.name for each in folder.iterdir()) == [".torn-step-0000000002", "step-0000000001"]


def test_a_checkpoint_of_a_newer_release_is_refused_and_stays(settings: LearnerSettings) -> None:
    meta = saved(settings, 2)
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "format": 2}))
    with pytest.raises(SapoError) as caught:
        Service(settings)
    assert (caught.value.text, caught.value.hint, caught.value.exit_code) == (
        f"the newest checkpoint in {meta.parent.parent} was written by a newer release (its format is 2, and"
        " this release reads 1)",
        "pip install --upgrade sapo-swarm, use another --data-dir, or start over: --fresh",
        ExitCode.DATA,
    )
    assert len(list(meta.parent.parent.glob("step-*"))) == 2
    assert Service(replace(settings, fresh=True)).about()["step"] == 0


def test_other_adapters_on_the_same_model_are_refused_with_the_reason(settings: LearnerSettings) -> None:
    saved(replace(settings, lora_rank=4), 1)
    with pytest.raises(SapoError) as caught:
        Service(replace(settings, lora_rank=8))
    assert caught.value.text == (
        f"the checkpoints in {settings.directory / 'checkpoints'} are of {settings.model!r} with other"
        " parameters than it has now"
    )
    assert "learner.lora_rank" in caught.value.hint


def test_a_damaged_checkpoint_is_dated_by_when_it_was_found(settings: LearnerSettings) -> None:
    """The last ones found are kept, and a step's number says nothing: a learner may reach it twice."""
    meta = saved(settings, 2)
    meta.unlink()
    os.utime(meta.parent, (1, 1))
    Service(settings)
    [damaged] = meta.parent.parent.glob(".torn-*")
    assert damaged.stat().st_mtime > 1


def test_a_checkpoint_of_adapters_holds_no_base(settings: LearnerSettings) -> None:
    meta = saved(replace(settings, lora_rank=4), 1)
    names = [each for each in load_file(meta.with_name("state.safetensors")) if each.startswith("model/")]
    assert names
    assert all(".lora_" in each for each in names)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_written(settings: LearnerSettings, value: float) -> None:
    saved(settings, 1)
    service = Service(settings)
    with torch.no_grad():
        service._trainer.parameters[-1][0] = value
    with pytest.raises(WeightsNotFinite, match="going on from the last checkpoint"):
        service.call("checkpoint", {})
    assert Service(settings).about()["step"] == 1
