"""A tiny policy that guesses weekdays: trained so little that it is mostly wrong and sometimes right.

It is right once in about seven completions of a calendar task, so groups of completions differ in
reward and rounds have something to learn. Training it takes a second or two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from sapo_client.lab.corpus import Document, documents
from sapo_client.lab.tokenizer import train_tokenizer
from sapo_verification.suites.catalogue import family

FAMILY: Final = "calendar_arithmetic"
STEPS: Final = 60
LINES: Final = 32


def make_weekday_policy(folder: Path, seed: int = 0) -> Path:
    """Train the policy and save it in a folder that transformers loads."""
    torch.manual_seed(seed)
    corpus = documents([family(FAMILY, "nano")], 320, seed)[FAMILY]
    tokenizer = train_tokenizer([document.prompt + document.answer for document in corpus])
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=128,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        start = step * LINES % len(corpus)
        _update(model, optimizer, tokenizer, corpus[start : start + LINES])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _update(
    model: Qwen2ForCausalLM, optimizer: torch.optim.Optimizer, tokenizer: Any, lines: list[Document]
) -> None:
    """Make one training step on the answers; the prompts are left out of the loss."""
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    prompts = tokenizer([line.prompt for line in lines])["input_ids"]
    answers = tokenizer([line.answer for line in lines])["input_ids"]
    pairs = [(prompt, [*answer, end]) for prompt, answer in zip(prompts, answers, strict=True)]
    width = max(len(prompt) + len(answer) for prompt, answer in pairs)
    tokens = torch.full((len(pairs), width), pad)
    labels = torch.full((len(pairs), width), -100)
    for row, (prompt, answer) in enumerate(pairs):
        length = len(prompt) + len(answer)
        tokens[row, :length] = torch.tensor([*prompt, *answer])
        labels[row, len(prompt) : length] = torch.tensor(answer)
    optimizer.zero_grad()
    model(tokens, labels=labels).loss.backward()
    optimizer.step()
