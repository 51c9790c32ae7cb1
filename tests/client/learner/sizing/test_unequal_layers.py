"""Models whose layers differ, and models without fused attention."""

from pathlib import Path

import pytest
from support.model_folders import one_step, save_model, service_of
from support.pretended_card import pretended_card
from transformers import Gemma2Config, Gemma4TextConfig, GptOssConfig, PretrainedConfig

from sapo_client.learner.policy import load_policy
from sapo_client.learner.sizing.skeleton import make_skeleton, shape_of

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
}


def test_layers_with_heads_of_their_own_are_planned_and_trained(tmp_path: Path) -> None:
    """In Gemma 4, layers with full attention have wider heads than those with a sliding window."""
    folder = save_model(
        tmp_path / "model",
        Gemma4TextConfig,
        **SIZES,
        global_head_dim=32,
        vocab_size_per_layer_input=1024,
        hidden_size_per_layer_input=8,
        layer_types=["sliding_attention", "full_attention"],
    )
    policy = load_policy(str(folder), "cpu")
    shape = shape_of(make_skeleton(str(folder)))
    assert shape.parameters == policy.model.num_parameters()
    assert (shape.heads, shape.cache_values) == (4, 2 * 2 * 16 + 2 * 2 * 32)
    assert not one_step(service_of(folder, fresh=True))["rolled_back"]


@pytest.mark.parametrize("kind", [Gemma2Config, GptOssConfig])
def test_models_without_fused_attention_load_on_a_card(tmp_path: Path, kind: type[PretrainedConfig]) -> None:
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1} if kind is GptOssConfig else {}
    folder = save_model(tmp_path / "model", kind, **SIZES, **experts)
    with pretended_card():
        policy = load_policy(str(folder), "cuda")
        assert (policy.model.config._attn_implementation, str(policy.model.device)) == ("eager", "cuda:0")
