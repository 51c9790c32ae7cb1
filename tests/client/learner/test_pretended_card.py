"""The learner on a pretended CUDA device: tensors of the host beside the card's raise, as on a card.

It runs where no card is, with real values; what kernels, memory and timing do there is tested by ``-m gpu``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bitsandbytes  # noqa: F401  # asks for cards when it is imported
import peft  # noqa: F401  # imports it
import pytest
import torch
from support.model_folders import save_model
from support.pretended_card import pretended_card
from support.trainers import demonstration
from transformers import Gemma2Config, LlamaConfig, OlmoeConfig, PretrainedConfig, Qwen3Config

from sapo_client.learner.losses.chunked_head import MIN_VOCABULARY
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
}
LARGE = {"vocab_size": MIN_VOCABULARY + 16}
"""Its head is computed in blocks."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A model and settings that differ from the defaults."""

    kind: type[PretrainedConfig] = LlamaConfig
    sizes: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    capability: tuple[int, int] = (8, 0)


QWEN = {**LARGE, "head_dim": 16}
TRIALS = {
    "all parameters": Trial(sizes=LARGE),
    "adapters, recomputed": Trial(Qwen3Config, QWEN, {"lora_rank": 4, "gradient_checkpointing": True}),
    "all logits": Trial(Gemma2Config, {**LARGE, "head_dim": 16}),
    "experts": Trial(OlmoeConfig, {"num_experts": 4, "num_experts_per_tok": 2}),
    "float16": Trial(Qwen3Config, {"head_dim": 16}, {"lora_rank": 4}, (7, 5)),
    "dr_grpo, several updates": Trial(settings={"loss": "dr_grpo", "passes": 2, "mini_batches": 2}),
    "gspo, agreement": Trial(settings={"loss": "gspo", "agreement": True}),
    "cispo, reference": Trial(settings={"loss": "cispo", "kl_weight": 0.1, "lora_rank": 4}),
    "tapered": Trial(settings={"external_loss": "tapered", "own_baseline": True}),
    "demonstrations": Trial(
        settings={
            "demonstrations_per_step": 4,
            "demonstration_averaging": 0.9,
            "held_back": True,
            "optimizer": "adamw8bit",
        }
    ),
    "overlap": Trial(sizes=LARGE, settings={"overlap": True}),
    "overlap, adapters": Trial(Qwen3Config, QWEN, {"overlap": True, "lora_rank": 4}),
}


def steps(service: Service, count: int, *, ahead: bool) -> Iterator[dict[str, Any]]:
    """Sample and train with two groups, one of another node, and a demonstration; yield the reports."""
    request = {"prompts": ["6/8\n"], "completions_per_prompt": 4}
    [completions] = service.call("generate", {**request, "handles": [0]})["completions"]
    for number in range(count):
        own = {"prompt": "6/8\n", "completions": completions, "rewards": [1.0, 0.0, 0.0, 1.0]}
        other = {"prompt": "12 + 7 =\n", "completions": [b"19", b"21 "], "rewards": [1.0, 0.0]}
        groups = [
            {**own, "handle": number, "external": False, "family": 0},
            {**other, "handle": None, "external": True, "family": 0},
        ]
        following = {**request, "handles": [number + 1]}
        report = service.call(
            "train",
            {
                "groups": groups,
                "demonstrations": [demonstration(number, family=1)],
                "ahead": following if ahead else None,
            },
        )
        yield report
        generated = report["generated"] if ahead else service.call("generate", following)
        [completions] = generated["completions"]


@pytest.mark.parametrize("name", TRIALS)
def test_no_step_mixes_the_host_s_tensors_with_the_card_s(tmp_path: Path, name: str) -> None:
    trial = TRIALS[name]
    folder = save_model(tmp_path / "model", trial.kind, **{**SIZES, **trial.sizes})
    settings = LearnerSettings(
        str(folder),
        tmp_path / "run",
        device="cuda",
        max_new_tokens=4,
        **{"demonstrations_per_step": 0, "checkpoint_share": 0.0, **trial.settings},
    )
    with pretended_card(trial.capability):
        service = Service(settings)
        reports = list(steps(service, 2, ahead=settings.overlap))
        assert {str(each.device) for each in service._policy.model.parameters()} == {"cuda:0"}
        if settings.held_back:
            assert service.call("compare", {"prompts": ["6/8\n"]})["tokens"] > 0
            service.call("checkpoint", {})
            resumed = Service(settings)
            for one, other in zip(service._trainer.parameters, resumed._trainer.parameters, strict=True):
                assert one.equal(other)
        assert service.call("export", {"folder": str(tmp_path / "exported")})["step"] == 2
    assert [each["rolled_back"] for each in reports] == [False, False]
    assert all(each["gradient_norm"] > 0 for each in reports)
    assert max(each["mismatch"] for each in reports) < 1e-2
    assert (tmp_path / "exported" / "model.safetensors").exists()


def test_the_card_refuses_the_host_s_tensors() -> None:
    with pretended_card():
        card, host = torch.ones(3, device="cuda"), torch.ones(3)
        assert (str(card.device), card.is_cuda, str(card.cpu().device)) == ("cuda:0", True, "cpu")
        assert str((card + torch.tensor(1.0)).device) == "cuda:0", "one value of the host's is taken"
        assert str(card[torch.tensor([0, 2])].device) == "cuda:0", "so are its indices"
        mixing: list[Callable[[], torch.Tensor]] = [
            lambda: card + host,
            lambda: torch.cat([card, host]),
            lambda: host[torch.tensor([1], device="cuda")],
            lambda: torch.where(host > 0, card, card),
            lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
        ]
        for mixed in mixing:
            with pytest.raises(RuntimeError, match=r"Expected (all tensors|a generator)"):
                mixed()
