"""Checkpoints: exact resume, damaged files, other models, demonstrations."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.file_limit import largest_file
from support.policies import make_policy_folder
from support.trainers import demonstration

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings

PROMPTS = ["12 + 7 =\n", "6/8\n"]


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(
        model=str(folder), directory=tmp_path / "run", max_new_tokens=8, checkpoint_share=0.0
    )


def rounds(service: Service, count: int, *, shown: Sequence[int] = ()) -> list[object]:
    """Run rounds of sampling and training; return all results without the wall time.

    Args:
        service: of the learner.
        count: of rounds.
        shown: numbers of the demonstrations that each round brings, in a family where no own answer is right.
    """
    demonstrations = [demonstration(number, family=1) for number in shown]
    seen: list[object] = []
    for number in range(count):
        handles = [10 * number, 10 * number + 1]
        arguments = {"prompts": PROMPTS, "completions_per_prompt": 4, "handles": handles}
        groups = service.call("generate", arguments)["completions"]
        batch = [
            {
                "prompt": prompt,
                "completions": completions,
                "rewards": [float(len(text) % 2) * (1 - family) for text in completions],
                "external": False,
                "handle": handle,
                "family": family,
            }
            for family, (prompt, completions, handle) in enumerate(zip(PROMPTS, groups, handles, strict=True))
        ]
        report = service.call("train", {"groups": batch, "demonstrations": demonstrations})
        seen.append((groups, {**report, "seconds": 0}))
    return seen


def weights(service: Service) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in service._trainer.parameters]


def checkpoints(settings: LearnerSettings) -> list[Path]:
    return sorted((settings.directory / "checkpoints").glob("step-*"))


def saved(settings: LearnerSettings, steps: int) -> Service:
    """Return a service that wrote a checkpoint after each of its steps."""
    service = Service(settings)
    for _ in range(steps):
        rounds(service, 1)
        service.call("checkpoint", {})
    return service


def test_resume_is_exact(settings: LearnerSettings) -> None:
    uninterrupted = Service(settings)
    rounds(uninterrupted, 2)
    uninterrupted.call("checkpoint", {})
    resumed = Service(settings)
    assert resumed.about()["step"] == 2
    assert resumed._trainer.logprob_statistics == uninterrupted._trainer.logprob_statistics
    assert resumed._trainer.logprob_statistics.samples > 0
    assert rounds(resumed, 3) == rounds(uninterrupted, 3)
    assert all(torch.equal(*pair) for pair in zip(weights(resumed), weights(uninterrupted), strict=True))


def held(service: Service) -> list[DemonstrationText]:
    return list(service._trainer.demonstrations)


def test_resume_with_demonstrations_is_exact(settings: LearnerSettings) -> None:
    """The buffer evicts in the same order, draws are the same, and the second optimizer goes on."""
    settings = replace(
        settings,
        demonstrations_per_step=3,
        demonstration_capacity=10,
        demonstration_rate=1e-3,
        shows_steps=True,
    )
    uninterrupted = Service(settings)
    rounds(uninterrupted, 5, shown=range(14))
    uninterrupted.call("checkpoint", {})
    resumed = Service(settings)
    assert held(resumed) == held(uninterrupted)
    assert len(held(resumed)) == 10
    results = [rounds(service, 4, shown=range(20, 26)) for service in (resumed, uninterrupted)]
    assert results[0] == results[1]
    assert held(resumed) == held(uninterrupted)
    assert all(torch.equal(*pair) for pair in zip(weights(resumed), weights(uninterrupted), strict=True))
    assert uninterrupted._trainer.supervised.weights.student is not None, "it goes on as well"
    steps = uninterrupted._trainer.supervised.schedule.steps_for(len(held(uninterrupted)), 3)
    assert steps == 4, "each of ten texts once, three at a time"
    assert uninterrupted.call("train", {"groups": []})["demonstrations"] == 3 * steps


def right_and_wrong(number: int, *, external: bool) -> dict[str, object]:
    """Return a group of a right and a wrong answer to a sum."""
    return {
        "prompt": f"{number} + 7 =\n",
        "completions": [b"%d" % (number + 7), b"%d" % number],
        "rewards": [1.0, 0.0],
        "external": external,
        "handle": None,
        "family": 0,
    }


def test_resume_with_agreement_is_exact(settings: LearnerSettings) -> None:
    """The mean of own gradients goes on, which decides what of others is trained."""
    settings = replace(settings, agreement=True)
    others = [right_and_wrong(number, external=True) for number in range(3, 6)]
    uninterrupted = Service(settings)
    for number in range(3):
        uninterrupted.call("train", {"groups": [right_and_wrong(number, external=False), *others]})
    uninterrupted.call("checkpoint", {})
    resumed = Service(settings)
    reports = [service.call("train", {"groups": others}) for service in (resumed, uninterrupted)]
    assert reports[1]["gradient_norm"] > 0.0, "something agrees with the mean"
    assert [{**report, "seconds": 0} for report in reports] == [{**reports[1], "seconds": 0}] * 2
    assert all(torch.equal(*pair) for pair in zip(weights(resumed), weights(uninterrupted), strict=True))
    resumed_mean, mean = (service._trainer.own_gradient.mean for service in (resumed, uninterrupted))
    assert all(torch.equal(*pair) for pair in zip(resumed_mean, mean, strict=True))


def test_a_rollback_returns_to_the_good_checkpoints_demonstrations(settings: LearnerSettings) -> None:
    service = Service(replace(settings, demonstrations_per_step=3, demonstration_rate=1e-3))
    rounds(service, 5, shown=range(6))
    service.call("keep_good", {})
    before, kept = weights(service), held(service)
    moments = service._trainer.supervised.optimizer.state_dict()["state"][0]["exp_avg"].clone()
    rounds(service, 2, shown=range(6, 12))
    assert len(held(service)) == 12
    assert service.call("roll_back", {}) == {"step": 7}
    assert held(service) == kept
    assert all(torch.equal(*pair) for pair in zip(weights(service), before, strict=True))
    after = service._trainer.supervised.optimizer.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(after, moments)
    assert held(Service(settings)) == kept


def test_a_checkpoint_of_the_first_release_has_no_demonstrations(settings: LearnerSettings) -> None:
    rounds(service := Service(settings), 5, shown=range(6))
    service.call("checkpoint", {})
    (folder,) = checkpoints(settings)
    state, meta = folder / "state.safetensors", json.loads((folder / "meta.json").read_text())
    tensors = load_file(state)
    assert any(name.startswith("supervised-adam/") for name in tensors)
    save_file(
        {name: tensors[name] for name in tensors if name.startswith(("model/", "adam/", "random/"))}, state
    )
    meta["state_digest"] = hashlib.sha256(state.read_bytes()).hexdigest()
    del meta["own_logprob"]
    (folder / "meta.json").write_text(json.dumps(meta))
    resumed = Service(settings)
    assert resumed.about()["step"] == 5
    assert (held(resumed), len(resumed._trainer.supervised.optimizer.state)) == ([], 0)
    assert all(torch.equal(*pair) for pair in zip(weights(resumed), weights(service), strict=True))
    rounds(resumed, 1, shown=range(3))


def test_the_newest_two_are_kept(settings: LearnerSettings) -> None:
    saved(settings, 4)
    assert [path.name for path in checkpoints(settings)] == ["step-0000000003", "step-0000000004"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "no state", "no meta", "half a meta"])
def test_a_damaged_checkpoint_is_skipped(settings: LearnerSettings, damage: str) -> None:
    saved(settings, 2)
    newest = checkpoints(settings)[-1]
    state, meta = newest / "state.safetensors", newest / "meta.json"
    content = state.read_bytes()
    if damage == "cut":
        state.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        state.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "no state":
        state.unlink()
    elif damage == "no meta":
        meta.unlink()
    else:
        meta.write_text(meta.read_text()[:20])
    resumed = Service(settings)
    assert resumed.about()["step"] == 1
    rounds(resumed, 1)
    resumed.call("checkpoint", {})
    assert Service(settings).about()["step"] == 2


def test_a_checkpoint_of_one_step_may_be_damaged_twice(settings: LearnerSettings) -> None:
    saved(settings, 2)
    for _ in range(2):
        (checkpoints(settings)[-1] / "meta.json").unlink()
        resumed = Service(settings)
        assert resumed.about()["step"] == 1
        rounds(resumed, 1)
        resumed.call("checkpoint", {})
    assert [path.name for path in checkpoints(settings)] == ["step-0000000001", "step-0000000002"]


def test_a_crash_while_writing_leaves_the_old_checkpoint(settings: LearnerSettings) -> None:
    saved(settings, 1)
    unfinished = settings.directory / "checkpoints" / ".writing-step-0000000002"
    unfinished.mkdir()
    (unfinished / "state.safetensors").write_bytes(b"half")
    resumed = Service(settings)
    assert resumed.about()["step"] == 1
    resumed.call("checkpoint", {})
    assert not unfinished.exists()


def test_of_damaged_good_policies_the_last_is_kept(settings: LearnerSettings) -> None:
    service = Service(settings)
    for step in range(1, 4):
        rounds(service, 1)
        service.call("keep_good", {})
        good = settings.directory / "good"
        (good / f"step-{step:010d}" / "state.safetensors").write_bytes(b"damaged")
        [lost] = service.call("roll_back", {})["happened"]
        assert lost == ("good_lost", {"step": step})
    assert sorted(path.name for path in good.iterdir()) == [".torn-step-0000000003", "step-0000000003"]


def test_of_damaged_checkpoints_those_found_last_are_kept(settings: LearnerSettings) -> None:
    saved(settings, 1)
    folder = settings.directory / "checkpoints"
    for found, step in enumerate((7, 9, 8, 2)):
        damaged = folder / f".torn-step-{step:010d}"
        damaged.mkdir()
        os.utime(damaged, (found, found))
    saved(settings, 1)
    names = sorted(path.name for path in folder.glob(".torn-*"))
    assert names == [".torn-step-0000000002", ".torn-step-0000000008"]


def test_a_full_disk_ends_no_step_and_the_checkpoint_is_tried_again(settings: LearnerSettings) -> None:
    service = saved(replace(settings, checkpoint_share=1e9), 1)
    service.call("keep_good", {})
    folder = settings.directory / "checkpoints"
    before = service.call("generate", {"prompts": PROMPTS, "completions_per_prompt": 2, "handles": [1, 2]})
    with largest_file(1000):
        report = service.call("train", {"groups": []})
        [(event, fields)] = report["happened"]
        with pytest.raises(SapoError, match=r"could not be written: .*File too large") as caught:
            service.call("checkpoint", {})
        assert service.call("roll_back", {})["happened"][-1][0] == "checkpoint_failed"
    assert before["tokens"] > 0
    assert (event, str(folder / "step-0000000002") in fields["why"]) == ("checkpoint_failed", True)
    assert (caught.value.exit_code, caught.value.transient) == (ExitCode.DATA, True)
    assert caught.value.hint == f"free space in {folder} if the disk is full; the node will try again"
    assert [path.name for path in folder.iterdir()] == ["step-0000000001"], "its space was given back"
    assert "happened" not in service.call("train", {"groups": []})
    assert [path.name for path in checkpoints(settings)] == ["step-0000000003"], "only that after a rollback"


def test_another_models_checkpoint_is_refused(settings: LearnerSettings, tmp_path: Path) -> None:
    saved(settings, 1)
    other = replace(settings, model=str(make_policy_folder(tmp_path / "other", "llama")))
    with pytest.raises(SapoError, match="other") as caught:
        Service(other)
    assert caught.value.exit_code == ExitCode.DATA
    assert "--fresh" in caught.value.hint


@pytest.mark.parametrize("rank", [0, 4])
def test_a_moved_model_is_accepted(settings: LearnerSettings, tmp_path: Path, rank: int) -> None:
    settings = replace(settings, lora_rank=rank)
    before = saved(settings, 1)
    moved = Path(settings.model).rename(tmp_path / "moved")
    after = Service(replace(settings, model=str(moved)))
    assert after.about()["step"] == 1
    assert all(torch.equal(*pair) for pair in zip(weights(before), weights(after), strict=True))


@pytest.mark.parametrize("rank", [0, 4])
def test_another_model_of_the_same_shapes_is_refused(
    settings: LearnerSettings, tmp_path: Path, rank: int
) -> None:
    settings = replace(settings, lora_rank=rank)
    saved(settings, 1)
    other = make_policy_folder(tmp_path / "other", seed=1)
    with pytest.raises(SapoError) as caught:
        Service(replace(settings, model=str(other)))
    assert caught.value.text == (
        f"the checkpoints in {settings.directory / 'checkpoints'} are of {settings.model!r},"
        f" not {str(other)!r}"
    )


def test_adapters_do_not_resume_on_a_base_that_was_replaced(settings: LearnerSettings) -> None:
    settings = replace(settings, lora_rank=4)
    saved(settings, 1)
    make_policy_folder(Path(settings.model), seed=1)
    with pytest.raises(SapoError) as caught:
        Service(settings)
    assert (caught.value.text, caught.value.exit_code) == (
        f"the checkpoints in {settings.directory / 'checkpoints'} are adapters on another base than the one"
        f" that {settings.model!r} is now",
        ExitCode.DATA,
    )


@pytest.mark.parametrize("rank", [0, 4])
def test_checkpoints_of_the_first_release_resume_by_the_models_name(
    settings: LearnerSettings, rank: int
) -> None:
    settings = replace(settings, lora_rank=rank)
    saved(settings, 1)
    [folder] = checkpoints(settings)
    meta = json.loads((folder / "meta.json").read_text())
    old = {name: value for name, value in meta.items() if name not in ("model_digest", "shapes_digest")}
    (folder / "meta.json").write_text(json.dumps(old))
    assert Service(settings).about()["step"] == 1


def test_fresh_starts_over_and_moves_old_checkpoints_aside(settings: LearnerSettings) -> None:
    saved(settings, 1)
    fresh = Service(replace(settings, fresh=True))
    assert fresh.about()["step"] == 0
    aside = settings.directory / "checkpoints-replaced" / "step-0000000001" / "meta.json"
    assert json.loads(aside.read_text())["steps"] == 1


def test_checkpoints_are_written_automatically_if_they_are_cheap(settings: LearnerSettings) -> None:
    eager = Service(replace(settings, checkpoint_share=1e9))
    rounds(eager, 1)
    assert [path.name for path in checkpoints(settings)] == ["step-0000000001"]
    eager._save_seconds = 1e12  # a checkpoint of that cost is never due during this test
    rounds(eager, 1)
    assert [path.name for path in checkpoints(settings)] == ["step-0000000001"]


def test_a_new_learning_rate_replaces_the_old_one(settings: LearnerSettings) -> None:
    saved(settings, 1)
    resumed = Service(replace(settings, learning_rate=7e-5))
    assert [group["lr"] for group in resumed._trainer.optimizer.param_groups] == [7e-5]
