"""Low-rank adapters in training, sampling, checkpoints and exports."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.policies import make_policy_folder
from transformers import AutoModelForCausalLM

from sapo_client.learner.adapters import base_model
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.generate import PlainGenerator, generator_for
from sapo_client.learner.policy import load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.precision import BaseName
from sapo_client.learner.wire import Message

PROMPT = "12 + 7 =\n"
RANK = 4


@pytest.fixture(params=["qwen2", "gpt2"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model", request.param)
    return LearnerSettings(
        str(folder), tmp_path / "run", learning_rate=1e-2, max_new_tokens=6, lora_rank=RANK
    )


def test_libraries_print_nothing_when_adapters_are_added(tmp_path: Path) -> None:
    code = (
        "import sys; from sapo_client.learner.sizing.skeleton import make_skeleton;"
        " make_skeleton(sys.argv[1], lora_rank=4)"
    )
    folder = str(make_policy_folder(tmp_path / "model"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True, env=environment
    )
    assert (done.stdout, done.stderr) == ("", "")


def train(service: Service) -> Message:
    group = {
        "prompt": PROMPT,
        "completions": [b"7", b"19", b"8", b"+"],
        "rewards": [0.0, 1.0, 0.0, 0.0],
        "external": True,
        "handle": None,
    }
    return service.call("train", {"groups": [group]})


def state(service: Service, *, adapters: bool) -> dict[str, torch.Tensor]:
    parameters = service._policy.model.named_parameters()
    return {name: value.detach().clone() for name, value in parameters if ("lora_" in name) == adapters}


def test_only_adapters_are_trained(settings: LearnerSettings) -> None:
    service = Service(settings)
    base, adapters = state(service, adapters=False), state(service, adapters=True)
    assert 0 < sum(map(torch.numel, adapters.values())) < sum(map(torch.numel, base.values()))
    report = train(service)
    assert report["gradient_norm"] > 0
    after = state(service, adapters=True)
    assert any(not torch.equal(adapters[name], after[name]) for name in adapters)
    assert all(torch.equal(base[name], value) for name, value in state(service, adapters=False).items())


def test_samples_are_those_of_the_adapted_policy(settings: LearnerSettings) -> None:
    """Their log-probabilities equal those that training computes, so ratios start at one."""
    service = Service(settings)
    for _ in range(3):
        train(service)
    assert isinstance(generator_for(service._policy), PlainGenerator)
    arguments = {"prompts": [PROMPT], "completions_per_prompt": 4, "handles": [1]}
    completions = service.call("generate", arguments)["completions"][0]
    own = {
        "prompt": PROMPT,
        "completions": completions,
        "rewards": [1.0, 0.0, 0.0, 0.0],
        "external": False,
        "handle": 1,
    }
    held = service._held[1]
    report = service.call("train", {"groups": [own]})
    assert (report["reencoded_groups"], report["clipped_share"]) == (0, 0.0)
    assert report["tokens"] == sum(len(item.tokens) for item in held.completions)


def test_a_checkpoint_holds_only_adapters_and_resumes_exactly(settings: LearnerSettings) -> None:
    whole = Service(settings)
    for _ in range(3):
        train(whole)
    whole.call("checkpoint", {})
    resumed = Service(settings)
    assert resumed.about()["step"] == 3
    reports = [train(service) for service in (whole, resumed)]
    assert reports[0] | {"seconds": 0} == reports[1] | {"seconds": 0}
    for name, value in state(whole, adapters=True).items():
        assert torch.equal(value, state(resumed, adapters=True)[name])
    (newest, *_) = sorted((settings.directory / "checkpoints").glob("step-*"), reverse=True)
    size = (newest / "state.safetensors").stat().st_size
    assert size < 0.9 * sum(4 * value.numel() for value in whole._policy.model.parameters())


def test_an_export_is_a_plain_model_with_the_adapters_in_its_weights(
    settings: LearnerSettings, tmp_path: Path
) -> None:
    service = Service(settings)
    for _ in range(3):
        train(service)
    service.call("export", {"folder": str(tmp_path / "out")})
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert not list((tmp_path / "out").glob("adapter*"))
    ids = torch.tensor([service._policy.encode_prompt(PROMPT)])
    start = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32)
    with torch.no_grad():
        now, out, then = (model(ids).logits for model in (service._policy.model, exported, start))
    assert torch.allclose(now, out, atol=1e-4)
    assert not torch.allclose(now, then, atol=1e-2)
    assert train(service)["gradient_norm"] > 0, "the adapters are still there"


def test_the_reference_is_the_model_without_adapters(settings: LearnerSettings) -> None:
    service = Service(replace(settings, kl_weight=0.1))
    level = TrainingGroup((30, 31), ((40, 41), (42, 43)), (0.0, 0.0), True, None)
    assert service._trainer.step([level]).loss == pytest.approx(0.0, abs=1e-6), (
        "at the start the divergence is zero"
    )
    for _ in range(3):
        train(service)
    assert service._trainer.step([level]).loss > 1e-4
    assert "lora" not in type(base_model(service._policy.model)).__name__.lower()


def test_rank_zero_trains_the_model_itself(tmp_path: Path) -> None:
    folder: Path = make_policy_folder(tmp_path / "model")
    service = Service(LearnerSettings(str(folder), tmp_path / "run"))
    assert state(service, adapters=True) == {}
    assert base_model(service._policy.model) is service._policy.model


@pytest.mark.parametrize("of_folder", [False, True])
def test_adapters_on_a_base_in_4_bits_are_exported_as_the_policy_that_was_trained(
    tmp_path: Path, of_folder: bool
) -> None:
    """In floats, because rounding the merged weights to four bits again makes another policy."""
    pytest.importorskip("bitsandbytes")
    folder = make_policy_folder(tmp_path / "model", "llama")
    if of_folder:
        load_policy(str(folder), "cpu", base="nf4").save(tmp_path / "quantised")
        folder = tmp_path / "quantised"
    base: BaseName = "auto" if of_folder else "nf4"
    service = Service(
        LearnerSettings(
            str(folder), tmp_path / "run", learning_rate=1e-1, lora_rank=RANK, base=base, device="cpu"
        )
    )
    before = logits(service._policy.model, service)
    train(service)
    expected = logits(service._policy.model, service)
    service.call("export", {"folder": str(tmp_path / "out")})
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert not hasattr(exported.config, "quantization_config")
    assert (before - expected).abs().max() > 0.1
    assert torch.allclose(logits(exported, service), expected, atol=1e-4)


def logits(model: torch.nn.Module, service: Service) -> torch.Tensor:
    ids = torch.tensor([service._policy.encode_prompt(PROMPT)])
    with torch.no_grad():
        found: torch.Tensor = model(ids).logits
    return found
