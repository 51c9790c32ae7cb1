"""Checks before a learner starts: memory, versions, chat templates, gated models."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import GatedRepoError
from support.policies import make_policy_folder
from transformers import Qwen2Config

from sapo_client.cli.checks import Check, check_advantage, check_extras, check_model, check_versions
from sapo_client.config import Config, LearnerConfig
from sapo_client.errors import SapoError
from sapo_client.extras import Extra, mixed_versions
from sapo_client.learner.loading.refusals import gated_error, is_gated
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing import fit as fitting
from sapo_client.learner.sizing.fit import fit, require_weights_fit, with_fitting_tokens
from sapo_client.learner.sizing.presets import completion_tokens
from sapo_client.learner.sizing.skeleton import make_skeleton, shape_of
from sapo_client.observe.events import EventLog
from sapo_client.paths import DataDir

GIB = 2**30


@pytest.fixture
def two_billion(tmp_path: Path) -> str:
    """Return a folder with a configuration and nothing else: four layers of Qwen2.5-7B."""
    folder = tmp_path / "wide"
    Qwen2Config(
        vocab_size=152_064,
        hidden_size=3584,
        intermediate_size=18_944,
        num_hidden_layers=4,
        num_attention_heads=28,
        num_key_value_heads=4,
    ).save_pretrained(folder)
    return str(folder)


def test_the_plan_names_the_first_leaner_settings_that_fit(two_billion: str, tmp_path: Path) -> None:
    def plan(gib: float) -> fitting.LearnerFit:
        settings = LearnerSettings(two_billion, tmp_path, device="cpu", memory_bytes=int(gib * GIB))
        return fit(settings, groups=8, completions=8, sampled_groups=4)

    roomy, tight = plan(1000), plan(20)
    assert (roomy.shape.parameters // 10**6, roomy.level, roomy.fits) == (2022, "full", True)
    assert (tight.fits, tight.hint.startswith("set learner.lora_rank = 16")) == (False, True)
    assert plan(1).hint == "take a smaller model, or a machine with more memory"


@pytest.mark.parametrize(("kind", "is_rough"), [("olmoe", False), ("opt", True), ("mamba", True)])
def test_unusual_architectures_are_planned_start_and_train(tmp_path: Path, kind: str, is_rough: bool) -> None:
    """A mixture of experts, one whose forward pass needs values, and one without attention."""
    folder = make_policy_folder(tmp_path / "model", kind)
    rows = {row.name: row for row in check_model(Config(learner=LearnerConfig(model=str(folder))))}
    assert rows["memory"].state == "ok"
    assert ("activations roughly" in rows["memory"].detail) is is_rough
    service = Service(
        LearnerSettings(str(folder), tmp_path / "run", max_new_tokens=8, device="cpu", checkpoint_share=0.0)
    )
    prompt = "12 + 7 =\n"
    arguments = {"prompts": [prompt], "completions_per_prompt": 4, "handles": [1]}
    [completions] = service.call("generate", arguments)["completions"]
    group = {"prompt": prompt, "completions": completions, "rewards": [1.0, 0.0, 0.0, 1.0], "handle": 1}
    report = service.call("train", {"groups": [{**group, "external": False, "family": 0}]})
    assert report["step"] == 1
    assert report["gradient_norm"] > 0.0


def test_a_learner_without_the_memory_for_its_weights_does_not_load_them(
    two_billion: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "available_bytes", lambda _device: 8.0 * GIB)
    with pytest.raises(SapoError, match=r"takes \d+\.\d GiB to train, and 8.0 are free") as caught:
        require_weights_fit(LearnerSettings(two_billion, tmp_path, device="cpu"))
    assert f"sapo doctor --model {two_billion}" in caught.value.hint
    require_weights_fit(LearnerSettings("bundled", tmp_path, device="cpu"))


@pytest.mark.parametrize(
    ("longest", "vocabulary", "window", "tokens"),
    [
        (64, 300, 512, 64),
        (1056, 300, None, 264),
        (1056, 300, 512, 256),  # the window less a usual prompt
        (1056, 151_936, 32_768, 352),  # words: three bytes a token
        (2080, 151_936, None, 694),
        (2080, 151_936, 512, 16),
    ],
)
def test_completions_are_as_long_as_tasks_vocabulary_and_window_allow(
    longest: int, vocabulary: int, window: int | None, tokens: int
) -> None:
    assert completion_tokens(longest, vocabulary, window) == tokens


def test_a_learner_follows_its_model_unless_the_length_is_set(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model")
    settings = LearnerSettings(str(folder), tmp_path / "run", max_new_tokens=8)
    assert with_fitting_tokens(settings) == settings
    shape = shape_of(make_skeleton(str(folder)))
    expected = completion_tokens(1056, shape.vocabulary, shape.window)
    fitted = with_fitting_tokens(replace(settings, completion_bytes=1056))
    assert (fitted.max_new_tokens, fitted.completion_bytes) == (expected, None)
    assert expected != 8


@pytest.mark.parametrize(("chat", "state"), [(True, "ok"), (False, "warn")])
def test_the_doctor_plans_a_model_of_a_folder(tmp_path: Path, chat: bool, state: str) -> None:
    folder = make_policy_folder(tmp_path / "model", chat=chat)
    learner = LearnerConfig(model=str(folder), device="cpu", max_new_tokens=8)
    checks = list(check_model(Config(data_dir=tmp_path, learner=learner)))
    assert [(each.name, each.state) for each in checks] == [
        ("model", state),
        ("memory", "ok"),
        ("completions", "warn"),
    ]
    assert checks[0].detail.startswith("0.046 million parameters (qwen2)")
    assert checks[0].detail.endswith("tasks of level nano suit it")
    assert "GiB planned" in checks[1].detail
    assert checks[2].hint == "answers of level nano take up to 64: leave learner.max_new_tokens unset"
    nothing = LearnerConfig(model=str(tmp_path / "nothing"), device="cpu")
    [missing] = check_model(Config(data_dir=tmp_path, learner=nothing))
    assert (missing.state, "cannot read the configuration" in missing.detail) == ("fail", True)
    assert list(check_model(Config(data_dir=tmp_path))) == [], "a packaged policy"


def test_the_doctor_plans_a_large_model_of_which_only_the_configuration_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of a node for which it is too large names this command; the weights need not be fetched."""
    monkeypatch.setattr(fitting, "available_bytes", lambda _device: 0.01 * GIB)
    folder = make_policy_folder(tmp_path / "model")
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    learner = LearnerConfig(model=str(folder), device="cpu")
    checks = list(check_model(Config(data_dir=tmp_path, learner=learner)))
    assert [(each.name, each.state) for each in checks] == [("model", "fail"), ("memory", "fail")]
    assert "GiB planned, 0.0 free" in checks[1].detail


@pytest.mark.parametrize(
    ("window", "tokens", "state", "left"), [(8, None, "fail", 0), (70, 8, "warn", 62), (72, 8, None, 0)]
)
def test_the_doctor_says_that_a_window_has_no_room(
    tmp_path: Path, window: int, tokens: int | None, state: str | None, left: int
) -> None:
    folder = make_policy_folder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": window}))
    learner = LearnerConfig(model=str(folder), device="cpu", max_new_tokens=tokens)
    found = [
        (each.state, each.detail)
        for each in check_model(Config(data_dir=tmp_path, learner=learner))
        if each.name == "window"
    ]
    answer = tokens or 16
    text = f"{window} tokens; beside an answer of {answer} they leave {left} for a prompt"
    assert found == ([] if state is None else [(state, text)])


def test_the_share_of_groups_with_an_advantage_is_read_from_the_first_steps(tmp_path: Path) -> None:
    data = DataDir(tmp_path).create()
    assert list(check_advantage(data)) == []
    with EventLog(data.events) as log:
        for skipped in (8, 7, 8):
            log.write("step", groups=8, skipped=skipped)
    [few] = check_advantage(data)
    assert (few.state, few.detail) == ("warn", "4 % of the first 24 groups had right and wrong answers")
    with EventLog(data.events) as log:
        for _ in range(20):
            log.write("step", groups=8, skipped=0)
    [many] = check_advantage(data)
    assert (many.state, many.detail) == ("ok", "78 % of the first 104 groups had right and wrong answers")


def test_installed_versions_outside_the_requirements_are_named() -> None:
    assert mixed_versions(["torch>=2.11", "not-installed==1", "trio>=0.1; extra == 'dev'"]) == ()
    [found] = mixed_versions(["torch>=99"])
    assert found.startswith("torch 2.")
    assert found.endswith("is installed, and >=99 is needed")
    assert (check_versions().state, mixed_versions()) == ("ok", ())


def test_versions_of_incomplete_extras_are_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An environment may hold `tabulate` for another program; two extras that need it are reported once."""
    whole, partly = Extra("whole", "", ("trio",)), Extra("partly", "", ("trio", "not_installed"))
    monkeypatch.setattr("sapo_client.extras.EXTRAS", (whole, partly))
    assert mixed_versions(["trio>=99; extra == 'partly'"]) == ()
    assert len(mixed_versions(["trio>=99; extra == 'whole'"])) == 1
    [_] = mixed_versions(["trio>=99; extra == 'partly'", "trio>=99; extra == 'whole'", "trio>=99"])


def test_a_gated_model_is_distinguished_from_a_missing_one() -> None:
    refused = GatedRepoError.__new__(GatedRepoError)  # its constructor needs the hub's response
    wrapped = OSError("You are trying to access a gated repo.")
    wrapped.__cause__ = refused
    assert [is_gated(error) for error in (refused, wrapped, OSError("no such file"))] == [True, True, False]
    error = gated_error("meta-llama/Llama-3.2-1B")
    assert "is gated" in error.text
    assert "hf auth login" in error.hint


@pytest.mark.parametrize(
    ("settings", "module", "found", "extra"),
    [
        ({"backend": "vllm"}, "vllm", 'learner.backend = "vllm" needs vLLM', "vllm"),
        ({"backend": "tinker"}, "tinker", 'learner.backend = "tinker" needs the Tinker API', "tinker"),
        ({"lora_rank": 8}, "peft", "learner.lora_rank needs LoRA adapters", "lora"),
        (
            {"lora_rank": 8, "base": "nf4"},
            "bitsandbytes",
            'learner.base = "nf4" needs 4-bit models and 8-bit moments',
            "quantised",
        ),
    ],
)
def test_a_missing_extra_is_named_with_the_setting_that_needs_it(
    settings: dict[str, Any], module: str, found: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sapo doctor` had called a node ready whose start then ended for want of vLLM."""
    monkeypatch.setitem(sys.modules, module, None)
    hint = f"pip install 'sapo-swarm[{extra}]', or change the setting"
    expected = [Check("extras", "fail", f"{found}; not installed: {module}", hint)]
    assert list(check_extras(Config(learner=LearnerConfig(**settings)))) == expected
    assert list(check_extras(Config(learner=LearnerConfig()))) == []


@pytest.mark.parametrize(("tracker", "name"), [("trackio", "trackio"), ("tensorboard", "TensorBoard")])
def test_a_missing_tracker_is_named_with_the_setting_that_needs_it(
    tracker: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sapo doctor` had called a node ready that `sapo join` then refused to start."""
    monkeypatch.setitem(sys.modules, tracker, None)
    hint = f"pip install 'sapo-swarm[{tracker}]', or change the setting"
    found = f'observe.tracker = "{tracker}" needs {name}; not installed: {tracker}'
    config = Config.model_validate({"observe": {"tracker": tracker}})
    assert list(check_extras(config)) == [Check("extras", "fail", found, hint)]
