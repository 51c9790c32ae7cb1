"""`sapo lab pretrain`: train the bundled policy from scratch on generated nano items.

A Qwen2 of about a million parameters learns to continue prompts of the suite's nano level with the answers of
the corpus's authors (``corpus.py``). The same command with the same seed on the same machine writes the same
file. The loss covers completions and their end token only: prompts are noise by construction.

An existing policy may continue with other authors: in minutes it answers correctly less often, but knows
almost as much. The initial policies of experiments are made this way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from sapo_client.lab.corpus import Authors, Document, completion, documents
from sapo_client.lab.tokenizer import train_tokenizer
from sapo_client.learner.policy import load_policy
from sapo_verification.suites.catalogue import FAMILIES, NANO_DEFAULT, family

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

IGNORED: Final = -100
"""The label that torch's cross entropy ignores."""

BATCH: Final = 128
CHUNK: Final = 32
"""Lines per forward pass; lines are sorted by length, so short ones are not padded to the batch's longest."""

Line = tuple[list[int], list[int]]
"""Tokens of a prompt and tokens of a completion."""

WARMUP_STEPS: Final = 50
DOCUMENTS_PER_FAMILY: Final = 8000

LONG: Final = frozenset({"arc_1d"})
LONG_WEIGHT: Final = 0.3
"""Its lines are four times as long as the others' and hardly learned at this size, so it gets fewer lines."""

CAREFUL: Final = Authors(chatty=0.0, guesser=0.0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of a pretraining.

    Attributes:
        families: task families, at the nano level.
        authors: authors of the last part of the training; before it only the careful one, as noise slows it.
        mixed_share: share of the steps in that last part.
        peak_learning_rate: learning rate of AdamW after the warm-up.
        start: initial policy, as in `sapo join --model`; None for a random one.
    """

    families: tuple[str, ...]
    steps: int
    authors: Authors
    mixed_share: float
    peak_learning_rate: float
    start: str | None = None


FROM_NOTHING: Final = Recipe(
    families=FAMILIES,
    steps=2200,
    authors=Authors(chatty=0.45, guesser=0.20),
    mixed_share=0.15,
    peak_learning_rate=2e-3,
)
"""The recipe of the bundled policy."""

FROM_A_POLICY: Final = Recipe(
    families=NANO_DEFAULT,
    steps=200,
    authors=Authors(chatty=0.97, guesser=0.025),
    mixed_share=1.0,
    peak_learning_rate=1e-3,
    start="bundled",
)
"""The recipe of an initial policy with which most groups have no advantage (docs/results.md)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress after a step: loss in nats per token."""

    step: int
    steps: int
    loss: float


def pretrain(
    out: Path,
    recipe: Recipe = FROM_NOTHING,
    *,
    seed: int = 0,
    documents_per_family: int = DOCUMENTS_PER_FAMILY,
    progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Train a policy and save it to ``out`` in half precision, with its tokenizer.

    Raises:
        SapoError: the initial policy cannot be loaded.
    """
    torch.manual_seed(seed)
    corpus = documents([family(name, "nano") for name in recipe.families], documents_per_family, seed)
    draw = random.Random(f"{seed}/batches")
    model, tokenizer = _start(recipe, corpus, seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.peak_learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    for step in range(1, recipe.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.peak_learning_rate * _schedule(step, recipe.steps)
        writers = recipe.authors if step > recipe.steps * (1 - recipe.mixed_share) else CAREFUL
        loss = _update(model, optimizer, _batch(corpus, writers, draw, tokenizer))
        progress(Progress(step, recipe.steps, loss))
    save(model, tokenizer, out)


def _start(
    recipe: Recipe, corpus: dict[str, list[Document]], seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if recipe.start is not None:
        policy = load_policy(recipe.start, "cpu")
        return policy.model, policy.tokenizer
    tokenizer = train_tokenizer(_texts(corpus, recipe.authors, seed))
    return new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id), tokenizer


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Save weights in half precision and the tokenizer, in the format of transformers."""
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.float16).save_pretrained(out)
    tokenizer.save_pretrained(out)


SHAPES: Final[Mapping[str, Mapping[str, Any]]] = {
    "bundled": {  # 0.85 million parameters
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "qwen2.5-0.5b": {  # 494 million
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}
"""Shapes of random models, by name; the vocabulary is the tokenizer's unless a shape has its own."""


def new_model(vocabulary: int, end: int, pad: int, shape: str = "bundled") -> PreTrainedModel:
    """Return a Qwen2 with random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"vocab_size": vocabulary, **SHAPES[shape]}
    return Qwen2ForCausalLM(
        Qwen2Config(
            **sizes,
            tie_word_embeddings=True,
            attn_implementation="eager",  # on a CPU, flash attention's backward pass takes half the step
            eos_token_id=end,
            pad_token_id=pad,
            bos_token_id=None,
        )
    )


def _schedule(step: int, steps: int) -> float:
    """Return the factor of the learning rate: linear warm-up, then linear decay to a tenth."""
    return min(step / WARMUP_STEPS, 1.0 - 0.9 * step / steps)


def _texts(corpus: dict[str, list[Document]], authors: Authors, seed: int) -> list[str]:
    draw = random.Random(f"{seed}/tokenizer")
    return [
        document.prompt + completion(document, siblings, authors, draw)
        for siblings in corpus.values()
        for document in siblings[:1000]
    ]


def _batch(
    corpus: dict[str, list[Document]],
    authors: Authors,
    draw: random.Random,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Line]:
    """Return tokenized prompts and completions, shortest first."""
    names = draw.choices(list(corpus), [LONG_WEIGHT if name in LONG else 1.0 for name in corpus], k=BATCH)
    chosen = [draw.choice(corpus[name]) for name in names]
    prompts = tokenizer([document.prompt for document in chosen])["input_ids"]
    answers = tokenizer([completion(d, corpus[d.family], authors, draw) for d in chosen])["input_ids"]
    lines = [
        (prompt, [*answer, tokenizer.eos_token_id]) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    return sorted(lines, key=lambda line: len(line[0]) + len(line[1]))


def _padded(lines: list[Line]) -> tuple[Tensor, Tensor]:
    """Return right-padded tokens and labels, both (lines, longest)."""
    width = max(len(prompt) + len(answer) for prompt, answer in lines)
    tokens = torch.zeros((len(lines), width), dtype=torch.long)
    labels = torch.full((len(lines), width), IGNORED)
    for row, (prompt, answer) in enumerate(lines):
        line = torch.tensor([*prompt, *answer])
        tokens[row, : len(line)] = line
        labels[row, len(prompt) : len(line)] = line[len(prompt) :]
    return tokens, labels


def _update(model: PreTrainedModel, optimizer: torch.optim.Optimizer, lines: list[Line]) -> float:
    """Do one AdamW step with bfloat16 matrix products; return the mean loss per token before it."""
    optimizer.zero_grad()
    count = sum(len(answer) for _, answer in lines)
    total = 0.0
    for start in range(0, BATCH, CHUNK):
        tokens, labels = _padded(lines[start : start + CHUNK])
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(tokens, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1),
            labels[:, 1:].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )
        (loss / count).backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total / count
