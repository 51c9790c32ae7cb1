"""Adapters on architectures with linear layers that do not support them."""

from pathlib import Path
from typing import Any

import pytest
from support.model_folders import one_step, refusals, save_model, service_of
from transformers import FalconMambaConfig, Llama4TextConfig, Mamba2Config, MambaConfig, PretrainedConfig

from sapo_client.learner.policy import load_policy

STATES: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "state_size": 8}
EXPERTS: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "intermediate_size_mlp": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "num_local_experts": 2,
}

KINDS: dict[str, tuple[type[PretrainedConfig], dict[str, Any], set[str]]] = {
    "mamba": (MambaConfig, STATES, {"in_proj", "x_proj"}),
    "falcon_mamba": (FalconMambaConfig, STATES, {"in_proj", "x_proj"}),
    "mamba2": (Mamba2Config, {**STATES, "num_heads": 8, "head_dim": 12, "n_groups": 1}, {"in_proj"}),
    "llama4": (
        Llama4TextConfig,
        EXPERTS,
        {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_adapter_is_trained(tmp_path: Path, kind: str) -> None:
    """Both steps: the gradient of an adapter's first matrix is zero until its second one has changed."""
    settings, sizes, layers = KINDS[kind]
    folder = save_model(tmp_path / "model", settings, **sizes)
    assert refusals(folder, lora_rank=4) == []
    service = service_of(folder, lora_rank=4, fresh=True)
    fresh = load_policy(str(folder), "cpu").with_adapters(4)
    assert [one_step(service)["rolled_back"] for _ in range(2)] == [False, False]
    service.call("export", {"folder": str(tmp_path / "exported")})
    trained = {name: each for name, each in service._policy.model.named_parameters() if each.requires_grad}
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trained} == layers
    start = dict(fresh.model.named_parameters())
    assert [name for name, each in trained.items() if ".lora_B." in name and each.equal(start[name])] == []
    assert load_policy(str(tmp_path / "exported"), "cpu").model.num_parameters() == sum(
        each.numel() for name, each in start.items() if ".lora_" not in name
    )
