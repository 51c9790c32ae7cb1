"""The packaged policies' tokenizer: Qwen2's rules for splitting text, with its own merges."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END: Final = "<|im_end|>"
PAD: Final = "<|endoftext|>"
"""Qwen2's padding token: its tokenizer class would add it to a vocabulary without it, beyond the embedding's
rows."""

VOCABULARY: Final = 512
"""256 bytes, two special tokens and the merges for nano prompts; small, because the head's cost grows with
it."""


_WORD: Final = re.compile(r"[A-Za-z]{3,}| [-+=?]")
"""Pattern of the words that ``words_of_prompts`` keeps, and of operators with the space before them."""


def words_of_prompts(prompts: Iterable[str]) -> list[str]:
    """Return the words of prompts.

    A tokenizer trained on them has one token per word, and single symbols otherwise: steps that work symbol
    by symbol must not depend on which symbols happened to be merged.
    """
    return [word for prompt in prompts for word in _WORD.findall(prompt)]


def train_tokenizer(texts: Iterable[str], whole: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Train a tokenizer on texts; every digit is a token of its own, so sums align by column.

    Args:
        texts: texts from which merges are learned.
        whole: strings that are one token wherever they occur, such as the tags of an answer; they are text,
            not control tokens.

    The splitting rules must be Qwen2's: for a model of that architecture transformers ignores the rules in
    ``tokenizer.json`` and builds its ``Qwen2Tokenizer`` from vocabulary and merges alone.
    """
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    rules = Qwen2Tokenizer().backend_tokenizer
    bpe = Tokenizer(models.BPE())
    bpe.normalizer, bpe.pre_tokenizer = rules.normalizer, rules.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    model = json.loads(bpe.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Qwen2Tokenizer(model["vocab"], merges, unk_token=PAD, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in whole])
    return tokenizer
