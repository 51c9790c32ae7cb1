"""Tiny random models with their own tokenizers, saved as folders that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OlmoeConfig,
    OlmoeForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from sapo_client.lab.tokenizer import train_tokenizer

TEXTS: Final = ["12 + 7 =\n19", "Monday +3\nThursday", "6/8\n3/4"] * 4

_SMALL: Final[dict[str, Any]] = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def make_policy_folder(folder: Path, kind: str = "qwen2", *, seed: int = 0, chat: bool = False) -> Path:
    """Save a random model of about 0.05 million parameters.

    Kinds: qwen2, llama, llama3-rope, gpt2, opt, olmoe, mamba.
    """
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(TEXTS)
    if chat:
        tokenizer.chat_template = (
            "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<answer>"
        )
    model = _model(kind, len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms start as constants, which would hide mistakes
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _model(kind: str, vocabulary: int, end: int, pad: int) -> PreTrainedModel:
    common = {"vocab_size": vocabulary, "eos_token_id": end, "pad_token_id": pad, "bos_token_id": None}
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**common, **_SMALL, tie_word_embeddings=True))
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**common, **_SMALL, attention_bias=True, mlp_bias=True))
    if kind == "llama3-rope":
        rope = {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
        return LlamaForCausalLM(LlamaConfig(**common, **_SMALL, rope_parameters=rope))
    if kind == "olmoe":
        return OlmoeForCausalLM(OlmoeConfig(**common, **_SMALL, num_experts=4, num_experts_per_tok=2))
    if kind == "mamba":
        return MambaForCausalLM(MambaConfig(**common, hidden_size=48, num_hidden_layers=2, state_size=8))
    if kind == "opt":
        sizes = {"hidden_size": 48, "word_embed_proj_dim": 48, "ffn_dim": 64, "num_attention_heads": 4}
        return OPTForCausalLM(OPTConfig(**common, **sizes, num_hidden_layers=2, max_position_embeddings=128))
    return GPT2LMHeadModel(GPT2Config(**common, n_embd=48, n_layer=2, n_head=4, n_positions=128))
