"""Weights in a folder's files for which the model of its configuration has no place."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.model_folders import change_json, change_weights, doctored, one_step, service_of
from support.policies import make_policy_folder

from sapo_client.cli.checks import Check

HINT = (
    "correct its config.json if they belong to the model (as num_hidden_layers, attention_bias), or leave"
    " them out of its files"
)


def fewer_layers(folder: Path) -> None:
    change_json(folder / "config.json", num_hidden_layers=1)


def no_biases(folder: Path) -> None:
    change_json(folder / "config.json", attention_bias=False)


def another_part(folder: Path) -> None:
    change_weights(folder, lambda all_: all_ | {"vision_tower.proj.weight": torch.zeros(2, 2)})


UNUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "layers": (
        fewer_layers,
        "model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.bias,"
        " model.layers.1.mlp.down_proj.weight and 13 more",
    ),
    "biases": (
        no_biases,
        "model.layers.0.self_attn.k_proj.bias, model.layers.0.self_attn.o_proj.bias,"
        " model.layers.0.self_attn.q_proj.bias and 5 more",
    ),
    "another part": (another_part, "vision_tower.proj.weight"),
}


@pytest.mark.parametrize("kind", UNUSED)
def test_unused_weights_are_reported_by_doctor_and_learner(tmp_path: Path, kind: str) -> None:
    folder = make_policy_folder(tmp_path / "model", "llama")
    change, names = UNUSED[kind]
    change(folder)
    told = f"the model {str(folder)!r} has weights that are not used, for it has no place for them: {names}"
    assert [each for each in doctored(folder) if each.name == "weights"] == [
        Check("weights", "warn", told, HINT)
    ]
    service = service_of(folder, fresh=True)
    assert service.about()["notice"] == f"{told}; {HINT}"
    assert one_step(service)["rolled_back"] is False


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2", "opt", "olmoe", "mamba"])
def test_a_folder_without_unused_weights_has_no_notice(tmp_path: Path, kind: str) -> None:
    folder = make_policy_folder(tmp_path / "model", kind)
    assert [each.name for each in doctored(folder)] == ["model", "memory"]
    assert service_of(folder, fresh=True).about()["notice"] == ""
