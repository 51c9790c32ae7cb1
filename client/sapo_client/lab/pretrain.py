"""`sapo lab pretrain`: train a packaged policy from scratch on generated items.

A Qwen2 of about a million parameters learns to continue prompts of one of the suite's levels with the
answers of the corpus's authors (``corpus.py``). The same command with the same seed on the same machine
writes the same file. The loss covers completions and their end token only: prompts are noise by construction.

An existing policy can be trained further with other shares of authors: after minutes it gives right answers
less often, but its greedy answers are almost as good. The initial policies of experiments are made this way.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.corpus import Authors, Document, completion, documents
from sapo_client.lab.tokenizer import train_tokenizer, words_of_prompts
from sapo_client.lab.worked.solutions import worked_solution
from sapo_client.learner.cpu.bfloat16 import has_bfloat16
from sapo_client.learner.cpu.linear import use_fast_linear
from sapo_client.learner.logprobs import completion_logprobs
from sapo_client.learner.policy import load_policy
from sapo_verification.suites.catalogue import FAMILIES, NANO_DEFAULT, family
from sapo_verification.tasks.generators import solution
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

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
DOCUMENTS: Final = 8000
PROMPTS_PER_FAMILY: Final = 200
"""Number of prompts for a shared tokenizer; enough to contain every word of the prompts."""

CAREFUL: Final = Authors(chatty=0.0, guesser=0.0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of a pretraining.

    Attributes:
        families: the task families of the corpus.
        levels: their levels; at ``worked`` the answers are worked solutions.
        vocabulary: families whose prompts the tokenizer is trained on, so that policies of different families
            share one; empty for the corpus's own text.
        weights: relative numbers of lines of some families; 1 for all others.
        batch: number of lines per step.
        documents: number of different items per family.
        shape: shape of a random model, one of ``SHAPES``.
        authors: authors of the last part of the training; before it only the careful one, because noise slows
            training.
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
    levels: tuple[str, ...] = ("nano",)
    vocabulary: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    batch: int = BATCH
    documents: int = DOCUMENTS
    shape: str = "bundled"


FROM_NOTHING: Final = Recipe(
    families=FAMILIES,
    steps=2200,
    authors=Authors(chatty=0.45, guesser=0.20),
    mixed_share=0.15,
    peak_learning_rate=2e-3,
    weights={"arc_1d": 0.3},  # long lines, and hardly learned at this size
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
"""The recipe of an initial policy with which most groups have no advantage (docs/results-history.md)."""

SMALL: Final = Recipe(
    families=NANO_DEFAULT,
    steps=2000,
    authors=Authors(chatty=0.9, guesser=0.08),
    mixed_share=0.15,
    peak_learning_rate=3e-3,
    vocabulary=NANO_DEFAULT,
    shape="bundled-small",
)
"""The recipe of a policy of a fifth of the size, whose tokenizer has one token for each word and symbol."""

FOR_LADDERS: Final = Recipe(
    families=NANO_DEFAULT,
    steps=2400,
    authors=Authors(chatty=0.6, guesser=0.2),
    mixed_share=0.25,
    peak_learning_rate=1e-3,
    start="bundled",
    levels=("nano", "nano-2", "nano-3"),
)
"""The recipe of an initial policy that sometimes gives right answers at every level; it is not packaged."""

KIND_A: Final = ("basic_arithmetic", "bf", "fraction_simplification")
KIND_B: Final = ("binary_matrix", "calendar_arithmetic", "propositional_logic")
"""Families of the two kinds of specialists; neither is trained on items of the other's families."""


def _specialist(families: tuple[str, ...]) -> Recipe:
    return Recipe(
        families=families,
        steps=450,
        authors=CAREFUL,
        mixed_share=0.0,
        peak_learning_rate=2e-3,
        levels=("worked",),
        vocabulary=(*KIND_A, *KIND_B),
        documents=4000,
    )


RECIPES: Final[Mapping[str, Recipe]] = {
    "bundled": FROM_NOTHING,
    "bundled-chatty": FROM_A_POLICY,
    "bundled-small": SMALL,
    "ladders": FOR_LADDERS,
    "specialist-a": _specialist(KIND_A),
    "specialist-b": replace(_specialist(KIND_B), steps=600, batch=64, weights={"binary_matrix": 0.4}),
}
"""Recipes by name. In those of the specialists matrices have less weight, because they are learned sooner."""


def recipe_named(name: str) -> Recipe:
    """Return a packaged policy's recipe.

    Raises:
        SapoError: there is no such recipe.
    """
    if name not in RECIPES:
        raise SapoError(
            f"there is no recipe {name!r}",
            hint=f"recipes are {', '.join(RECIPES)}",
            exit_code=ExitCode.USAGE,
        )
    return RECIPES[name]


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
    progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Train a policy and save it to ``out`` in half precision, with its tokenizer.

    Raises:
        SapoError: the initial policy cannot be loaded.
    """
    torch.manual_seed(seed)
    corpus = corpus_of(recipe, recipe.families, recipe.documents, seed)
    draw = random.Random(f"{seed}/batches")
    model, tokenizer = _start(recipe, corpus, seed)
    use_fast_linear(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.peak_learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    for step in range(1, recipe.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.peak_learning_rate * _schedule(step, recipe.steps)
        writers = recipe.authors if step > recipe.steps * (1 - recipe.mixed_share) else CAREFUL
        lines = _batch(corpus, recipe, writers, draw, tokenizer)
        loss = update(model, optimizer, lines, tokenizer.pad_token_id)
        progress(Progress(step, recipe.steps, loss))
    save(model, tokenizer, out)


def corpus_of(recipe: Recipe, names: Sequence[str], per_family: int, seed: int) -> dict[str, list[Document]]:
    """Return ``per_family`` items of every level of some families, by family."""
    corpus: dict[str, list[Document]] = {}
    for level in recipe.levels:
        author = worked_solution if level == "worked" else solution
        found = documents([family(name, level) for name in names], per_family, seed, author)
        for name, items in found.items():
            corpus.setdefault(name, []).extend(items)
    return corpus


def _start(
    recipe: Recipe, corpus: dict[str, list[Document]], seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if recipe.start is not None:
        policy = load_policy(recipe.start, "cpu")
        return policy.model, policy.tokenizer
    tokenizer = _tokenizer(recipe, corpus, seed)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    return new_model(len(tokenizer), end, pad, recipe.shape), tokenizer


def _tokenizer(recipe: Recipe, corpus: dict[str, list[Document]], seed: int) -> PreTrainedTokenizerBase:
    if not recipe.vocabulary:
        return train_tokenizer(_texts(corpus, recipe.authors, seed))
    shared = corpus_of(recipe, recipe.vocabulary, PROMPTS_PER_FAMILY, seed)
    prompts = [document.prompt for found in shared.values() for document in found]
    return train_tokenizer(words_of_prompts(prompts), whole=(OPEN_TAG, CLOSE_TAG))


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
    "bundled-small": {  # 0.17 million
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
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
    "qwen2.5-7b": {  # 7.1 billion, half a billion less than the published one, whose head is not tied
        "vocab_size": 152_064,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
}
"""Shapes of random models, by name; the vocabulary is the tokenizer's unless a shape has its own."""


def new_model(
    vocabulary: int, end: int, pad: int, shape: str = "bundled", *, half: bool = False
) -> PreTrainedModel:
    """Return a Qwen2 with random weights, float32 ones or bfloat16 ones.

    Seven billion in float32 take 28 GiB, more than a machine with a card for them may have.
    """
    from transformers import AutoModelForCausalLM, Qwen2Config

    sizes = {"vocab_size": vocabulary, **SHAPES[shape]}
    config = Qwen2Config(
        **sizes,
        tie_word_embeddings=True,
        attn_implementation="eager",  # on a CPU, flash attention's backward pass takes half the step
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
    )
    made: PreTrainedModel = AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16 if half else torch.float32
    )
    return made


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
    recipe: Recipe,
    authors: Authors,
    draw: random.Random,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Line]:
    """Return tokenized prompts and completions, shortest first."""
    names = draw.choices(list(corpus), [recipe.weights.get(name, 1.0) for name in corpus], k=recipe.batch)
    chosen = [draw.choice(corpus[name]) for name in names]
    prompts = tokenizer([document.prompt for document in chosen])["input_ids"]
    answers = tokenizer([completion(d, corpus[d.family], authors, draw) for d in chosen])["input_ids"]
    lines = [
        (prompt, [*answer, tokenizer.eos_token_id]) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    return sorted(lines, key=lambda line: len(line[0]) + len(line[1]))


def update(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    lines: list[Line],
    pad: int,
    *,
    bfloat16: bool | None = None,
) -> float:
    """Do one AdamW step on lines, shortest first; return the mean loss per token before it.

    Args:
        pad: id of the token that pads lines.
        bfloat16: whether to compute matrix products in bfloat16; None: if the processor has instructions for
            it, since otherwise float32 is faster.
    """
    optimizer.zero_grad()
    count = sum(len(answer) for _, answer in lines)
    compute = _bfloat16_loss if (has_bfloat16() if bfloat16 is None else bfloat16) else _float32_loss
    total = 0.0
    for start in range(0, len(lines), CHUNK):
        loss = compute(model, lines[start : start + CHUNK], pad)
        (loss / count).backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total / count


def _float32_loss(model: PreTrainedModel, lines: list[Line], pad: int) -> Tensor:
    """Return the summed loss, through the learner's own forward pass where it knows the architecture."""
    return -completion_logprobs(model, lines, pad, 1.0).sum()


def _bfloat16_loss(model: PreTrainedModel, lines: list[Line], pad: int) -> Tensor:
    tokens, labels = _padded(lines, pad)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tokens, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum"
    )


def _padded(lines: list[Line], pad: int) -> tuple[Tensor, Tensor]:
    """Return right-padded tokens and labels, both (lines, longest)."""
    width = max(len(prompt) + len(answer) for prompt, answer in lines)
    tokens = torch.full((len(lines), width), pad)
    labels = torch.full((len(lines), width), IGNORED)
    for row, (prompt, answer) in enumerate(lines):
        line = torch.tensor([*prompt, *answer])
        tokens[row, : len(line)] = line
        labels[row, len(prompt) : len(line)] = line[len(prompt) :]
    return tokens, labels
