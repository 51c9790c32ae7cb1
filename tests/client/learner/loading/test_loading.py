"""Folders that are refused when they are loaded, each with an error that says what to do."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.policies import make_policy_folder

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.policy import load_policy
from sapo_client.learner.sizing.precision import BaseName


def refusal(folder: Path, base: BaseName = "float32") -> tuple[str, str, int]:
    with pytest.raises(SapoError) as caught:
        load_policy(str(folder), "cpu", base=base)
    return caught.value.text, caught.value.hint, caught.value.exit_code


def change_weights(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})


@pytest.mark.parametrize("base", ["float32", "bfloat16"])
def test_weights_that_a_folder_lacks_are_refused(tmp_path: Path, base: BaseName) -> None:
    folder = make_policy_folder(tmp_path, "llama")
    change_weights(folder, lambda all_: {name: each for name, each in all_.items() if "lm_head" not in name})
    assert refusal(folder, base) == (
        f"the model {str(folder)!r} lacks weights: lm_head.weight",
        "its tensors must be named as transformers names those of LlamaForCausalLM; they would be random",
        ExitCode.CONFIG,
    )


def test_weights_with_other_names_are_refused(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path, "gpt2")
    change_weights(folder, lambda all_: {f"_orig_mod.{name}": each for name, each in all_.items()})
    text, _, _ = refusal(folder)
    assert text == (
        f"the model {str(folder)!r} lacks weights: lm_head.weight,"
        " transformer.h.0.attn.c_attn.bias, transformer.h.0.attn.c_attn.weight and 26 more"
    )


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2", "opt", "olmoe", "mamba"])
def test_whole_folders_are_loaded(tmp_path: Path, kind: str) -> None:
    """Tied weights are in the file once, and are not missed."""
    folder = make_policy_folder(tmp_path, kind)
    kept = load_file(folder / "model.safetensors")
    loaded = load_policy(str(folder), "cpu").model.state_dict()
    assert {name: torch.equal(loaded[name], each) for name, each in kept.items() if name in loaded} == {
        name: True for name in kept if name in loaded
    }
