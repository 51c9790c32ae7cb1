"""vLLM's engine in the learner: exact ids and log-probabilities, and weights that follow the trainer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.policies import TEXTS
from support.vllm_modules import changed
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    OlmoeConfig,
    PretrainedConfig,
    Qwen3Config,
)

from sapo_client.errors import SapoError
from sapo_client.lab.tokenizer import train_tokenizer
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import Policy, load_policy
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.vllm.generator import VllmGenerator

PROMPTS = ["12 + 7 =\n", "Monday +3\n"]
EXACT = 1e-4
SIZES: dict[str, Any] = {  # heads of 32, for vLLM's kernels on a CPU know no smaller ones
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
}


def own_logprobs(policy: Policy, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        return completion_logprobs(policy.model, [(prompt, tokens)], policy.pad, 1.0)[0].tolist()


def new_policy(folder: Path, settings: Callable[..., PretrainedConfig], **sizes: Any) -> Policy:
    """Return a random policy of an architecture."""
    torch.manual_seed(1)
    tokenizer = train_tokenizer(TEXTS)
    ends = {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    config = settings(vocab_size=len(tokenizer), **ends, **SIZES, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_policy(str(folder), "cpu")


@pytest.mark.parametrize("rank", [0, 4])
def test_samples_follow_the_policy_before_and_after_a_step(tmp_path: Path, rank: int) -> None:
    """All weights are copied, or adapters alone; nothing is encoded again or clipped."""
    settings = LearnerSettings(
        "bundled", tmp_path, device="cpu", vllm=True, learning_rate=1e-3, max_new_tokens=8, lora_rank=rank
    )
    service = Service(settings)
    for handle in (1, 3):
        arguments = {"prompts": PROMPTS, "completions_per_prompt": 4, "handles": [handle, handle + 1]}
        completions = service.call("generate", arguments)["completions"]
        for held in (service._held[handle], service._held[handle + 1]):
            for item in held.completions:
                assert 0 < len(item.tokens) <= 8
                assert service._policy.end not in item.tokens[:-1]
                expected = own_logprobs(service._policy, held.prompt, item.tokens)
                assert item.logprobs == pytest.approx(expected, abs=EXACT)
        group = {
            "prompt": PROMPTS[0],
            "completions": completions[0],
            "rewards": [1.0, 0.0, 0.0, 0.0],
            "external": False,
            "handle": handle,
        }
        report = service.call("train", {"groups": [group]})
        assert (report["reencoded_groups"], report["clipped_share"]) == (0, 0.0)
    assert service.call("evaluate", {"prompts": PROMPTS}) == service.call("evaluate", {"prompts": PROMPTS})


def test_weights_that_did_not_reach_the_engine_are_noticed() -> None:
    policy = load_policy("bundled", "cpu")
    generator = VllmGenerator(policy, seed=1)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(-1.0)
    assert generator._probe() > 0.1


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [(Qwen3Config, {"tie_word_embeddings": True}), (Qwen3Config, {}), (Gemma2Config, {})],
)
def test_all_weights_of_an_architecture_reach_the_engine(
    tmp_path: Path, settings: Callable[..., PretrainedConfig], sizes: dict[str, Any]
) -> None:
    policy = new_policy(tmp_path / "model", settings, **sizes)
    generator = VllmGenerator(policy, seed=1)
    for _ in range(2):
        changed(policy.model, 0.05)
        generator.refresh()
        assert generator._probe() < EXACT


def test_experts_reach_the_engine_under_their_own_names(tmp_path: Path) -> None:
    """vLLM 0.32 lays experts out once for its kernel on a CPU and uses those after an update: an error here.

    So the weights are compared before the kernel's layout; on a GPU the probe compares what it computes.
    """
    policy = new_policy(tmp_path / "model", OlmoeConfig, num_experts=4, num_experts_per_tok=2)
    generator = VllmGenerator(policy, seed=1)
    changed(policy.model, 0.05)
    with pytest.raises(SapoError, match="vLLM did not take the new weights"):
        generator.refresh()
    engine = generator._engine.llm_engine.model_executor.driver_worker.worker.model_runner.model
    own = dict(policy.model.named_parameters())
    for layer in range(2):
        experts = f"model.layers.{layer}.mlp.experts"
        held = engine.get_submodule(f"{experts}.routed_experts")
        assert torch.equal(held.w13_weight, own[f"{experts}.gate_up_proj"])
        assert torch.equal(held.w2_weight, own[f"{experts}.down_proj"])
