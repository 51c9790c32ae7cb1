"""Changed model folders, and the messages of doctor and learner about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from support.policies import make_policy_folder
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from sapo_client.cli.checks import Check, check_model
from sapo_client.config import Config, LearnerConfig
from sapo_client.errors import SapoError
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings


def change_json(file: Path, **changes: Any) -> None:
    """Set entries of a JSON object in a file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_weights(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    """Replace the tensors of a folder with one file of weights."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


def save_model(folder: Path, kind: type[PretrainedConfig], **changes: Any) -> Path:
    """Save a random model of a kind with the tokenizer of a small policy."""
    make_policy_folder(folder)
    own = AutoConfig.from_pretrained(folder)
    ids = {"vocab_size": own.vocab_size, "eos_token_id": own.eos_token_id, "pad_token_id": own.pad_token_id}
    AutoModelForCausalLM.from_config(kind(**{**ids, "bos_token_id": None, **changes})).save_pretrained(folder)
    return folder


def doctored(folder: Path, **learner: Any) -> list[Check]:
    """Return what ``sapo doctor`` says of a folder on a CPU."""
    settings = LearnerConfig(model=str(folder), device="cpu", **learner)
    return list(check_model(Config(data_dir=folder / "data", learner=settings)))


def service_of(folder: Path, **changes: Any) -> Service:
    """Return a learner of a folder on a CPU, whose directory is beside it."""
    settings: dict[str, Any] = {"device": "cpu", "max_new_tokens": 8, "demonstrations_per_step": 0, **changes}
    return Service(LearnerSettings(str(folder), folder.parent / "run", **settings))


def refusals(folder: Path, *, lora_rank: int = 0) -> list[tuple[str, str]]:
    """Return text and hint of the doctor's refusal of a folder and of the learner's, where they refuse it."""
    found = [
        (check.detail, check.hint) for check in doctored(folder, lora_rank=lora_rank) if check.state == "fail"
    ]
    try:
        service_of(folder, lora_rank=lora_rank)
    except SapoError as error:
        found.append((error.text, error.hint))
    return found


def one_step(service: Service) -> dict[str, Any]:
    """Sample four answers to a task and train on them; return the report."""
    request = {"prompts": ["6/8\n"], "completions_per_prompt": 4, "handles": [1]}
    [completions] = service.call("generate", request)["completions"]
    group = {"prompt": "6/8\n", "completions": completions, "rewards": [1.0, 0.0, 0.0, 1.0], "handle": 1}
    return dict(service.call("train", {"groups": [{**group, "external": False}]}))
