"""The bundled policy's tokenizer: Qwen2's rules for splitting text, merges of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END: Final = "<|im_end|>"
PAD: Final = "<|endoftext|>"
"""Qwen2's own names: its class adds this one to any vocabulary that lacks it, beyond the embedding's rows."""

VOCABULARY: Final = 512
"""The 256 bytes, two specials and the merges that nano prompts need; the head costs as much as its rows."""


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer for texts like these; a digit is always a token of its own, so sums go by column.

    The splitting rules must be Qwen2's: whatever a folder's ``tokenizer.json`` says, transformers gives every
    model of that architecture its ``Qwen2Tokenizer``, made anew from vocabulary and merges alone.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
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
    return Qwen2Tokenizer(model["vocab"], merges, unk_token=PAD, eos_token=END, pad_token=PAD)
