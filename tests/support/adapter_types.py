"""Processor seconds of a training pass and of decoding, by data type, for a model with adapters on a CPU.

    PYTHONPATH=$PYTHONPATH:tests python -m support.adapter_types

A random model with three of the layers of Qwen2.5-0.5B and adapters of rank 16; eight rows of 160 tokens are
trained, eight of 64 are read and eight tokens each decoded. The second of two runs counts.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen2Config

ROWS, TOKENS, READ, DECODED = 8, 160, 64, 8
VOCABULARY = 1000


def model_of(base: torch.dtype) -> Any:
    """Return a random model whose base has a type, with adapters in float32."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=3,
        num_attention_heads=14,
        num_key_value_heads=2,
    )
    plain = AutoModelForCausalLM.from_config(config).to(base)
    model = get_peft_model(plain, LoraConfig(r=16, target_modules="all-linear"))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model


def seconds_of(model: Any, *, bfloat16: bool) -> tuple[float, float]:
    """Return the processor seconds of a training pass, and of reading prompts and decoding."""
    ids = torch.randint(0, VOCABULARY, (ROWS, TOKENS))
    started = time.thread_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        loss = model(ids, labels=ids).loss
    loss.backward()
    trained = time.thread_time()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        cache = model(ids[:, :READ], use_cache=True).past_key_values
        for place in range(DECODED):
            model(ids[:, place : place + 1], past_key_values=cache, use_cache=True)
    return trained - started, time.thread_time() - trained


def main() -> None:
    """Print a row for each choice of types."""
    torch.set_num_threads(1)
    print("| base | products | training | decoding |\n| --- | --- | ---: | ---: |")
    for base, bfloat16 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, True)):
        model = model_of(base)
        seconds_of(model, bfloat16=bfloat16)
        training, decoding = seconds_of(model, bfloat16=bfloat16)
        products = "bfloat16" if bfloat16 else "float32"
        print(f"| {str(base).removeprefix('torch.')} | {products} | {training:.2f} | {decoding:.2f} |")


if __name__ == "__main__":
    main()
