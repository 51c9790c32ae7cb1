"""Log-probabilities of architectures whose logits are more than a product with the head, in blocks or not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.gradients import gradient_of
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    FalconH1Config,
    Gemma2Config,
    GraniteConfig,
    ModernBertDecoderConfig,
    Qwen3Config,
    RecurrentGemmaConfig,
    xLSTMConfig,
)

from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.losses import chunked_head
from sapo_client.learner.losses.plain_head import is_plain_head

VOCABULARY = 300
ROWS = [((30, 31, 32), (40, 41, 42, 43)), ((30, 31, 33), (50, 51, 52, 53))]

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

MORE: dict[str, Callable[[], Any]] = {
    "softcap": lambda: Gemma2Config(**SIZES, final_logit_softcapping=30.0),
    "scale": lambda: CohereConfig(**SIZES, logit_scale=0.25),
    "divisor": lambda: GraniteConfig(**SIZES, logits_scaling=8.0),
    "multiplier": lambda: FalconH1Config(
        **SIZES,
        lm_head_multiplier=0.1,
        mamba_d_ssm=64,
        mamba_n_heads=4,
        mamba_d_head=16,
        mamba_d_state=8,
    ),
    "modernbert": lambda: ModernBertDecoderConfig(**SIZES, cls_token_id=1, sep_token_id=2),
    "recurrent-gemma": lambda: RecurrentGemmaConfig(**SIZES, lru_width=32, logits_soft_cap=30.0),
    "xlstm": lambda: xLSTMConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_heads=4, num_blocks=1, output_logit_soft_cap=30.0
    ),
}


def make(config: Any, large: float) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():  # large logits, at which a cap shows
        model.get_output_embeddings().weight.mul_(large)
    return model


def found(model: Any) -> tuple[Tensor, Tensor]:
    model.zero_grad()
    values = completion_logprobs(model, ROWS, 0, 0.9)
    values.pow(2).sum().backward()  # type: ignore[no-untyped-call]
    return values.detach(), gradient_of(model.get_output_embeddings().weight).clone()


@pytest.mark.parametrize("kind", MORE)
@pytest.mark.parametrize("large", [1.0, 50.0])
def test_a_large_vocabulary_has_the_models_own_logits(
    monkeypatch: pytest.MonkeyPatch, kind: str, large: float
) -> None:
    """Even where the logits are too small for a cap to show yet."""
    model = make(MORE[kind](), large)
    expected = found(model)
    monkeypatch.setattr(chunked_head, "MIN_VOCABULARY", 1)
    assert not is_plain_head(model, model.get_output_embeddings())
    for one, other in zip(found(model), expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_plain_head_is_recognised(dtype: torch.dtype) -> None:
    model = make(Qwen3Config(**SIZES), 1.0).to(dtype)
    assert is_plain_head(model, model.get_output_embeddings())


def test_the_probe_does_not_change_the_model() -> None:
    model = make(Qwen3Config(**SIZES), 1.0)
    ids = torch.arange(8)[None]
    with torch.no_grad():
        before = model(ids).logits
        is_plain_head(model, model.get_output_embeddings())
        assert torch.equal(model(ids).logits, before)
