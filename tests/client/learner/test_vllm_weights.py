"""Weights under the names of a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.policies import make_policy_folder
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    MixtralConfig,
    Qwen3MoeConfig,
)

from sapo_client.learner.policy import load_policy
from sapo_client.learner.vllm.weights import checkpoint_weights

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
EXPERTS = {"num_experts_per_tok": 2}
HEAD = {"lm_head.weight"}


@pytest.mark.parametrize(
    ("kind", "extra", "missing"),
    [
        (Gemma2Config, {}, set()),
        (Gemma3TextConfig, {}, HEAD),
        (MixtralConfig, {"num_local_experts": 11, **EXPERTS}, set()),
        (Qwen3MoeConfig, {"num_experts": 4, "moe_intermediate_size": 16, **EXPERTS}, set()),
        (GptOssConfig, {"num_local_experts": 4, **EXPERTS}, set()),
    ],
)
def test_weights_have_the_names_of_the_checkpoint(
    tmp_path: Path, kind: type[Any], extra: dict[str, Any], missing: set[str]
) -> None:
    """After a change, so that none is the one that was read."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(kind(**SIZES, **extra)).save_pretrained(tmp_path / "first")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "first")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "second")
    require_checkpoint(model, tmp_path / "second", missing)


@pytest.mark.parametrize(
    ("kind", "missing"), [("qwen2", HEAD), ("llama", set()), ("olmoe", set()), ("gpt2", HEAD), ("opt", HEAD)]
)
def test_a_policy_has_the_names_of_its_folder(tmp_path: Path, kind: str, missing: set[str]) -> None:
    folder = make_policy_folder(tmp_path / "model", kind)
    require_checkpoint(load_policy(str(folder), "cpu").model, folder, missing)


def require_checkpoint(model: Any, folder: Path, missing: set[str]) -> None:
    """Compare all weights with the file; ``missing`` in it is the tied head."""
    weights = dict(checkpoint_weights(model))
    saved = load_file(folder / "model.safetensors")
    assert weights.keys() == saved.keys() | missing
    assert [
        name for name, each in saved.items() if not torch.equal(weights[name], each.to(weights[name]))
    ] == []
    for name in missing:
        assert torch.equal(weights[name], model.get_input_embeddings().weight)
