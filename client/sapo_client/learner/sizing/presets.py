"""Level of tasks and length of answers for a model of a given size."""

from __future__ import annotations

import math
from typing import Final, Literal

SuiteLevel = Literal["nano", "easy", "full"]

_SMALLEST: Final[dict[SuiteLevel, int]] = {"full": 300_000_000, "easy": 50_000_000, "nano": 0}
"""Fewest parameters. Below 50 million nobody publishes a model that follows instructions, so such a one is
trained on the terse prompts of ``nano``; the paper trained half a billion parameters on its tasks in full.
Both are rules of thumb: ``sapo doctor`` says what share of groups teaches."""

COMPLETION_BYTES: Final[dict[SuiteLevel, int]] = {"nano": 64, "easy": 1056, "full": 2080}
"""UTF-8 bytes of a level's longest answer with its reasoning, in most families."""

PROMPT_TOKENS: Final[dict[SuiteLevel, int]] = {"nano": 64, "easy": 256, "full": 512}
"""Tokens of a usual prompt, chat template included."""


LARGE_VOCABULARY: Final = 16_384
"""From this size on a vocabulary has words: a token of text is three to four bytes long."""

MIN_TOKENS: Final = 64
SPELLED_BYTES: Final = 256
"""A small vocabulary may need a token for each byte of a completion of at most this many bytes."""

_MIN_ROOM: Final = 16
"""Tokens of a completion in a window that is shorter than a usual prompt."""


def completion_tokens(longest_bytes: int, vocabulary: int, window: int | None) -> int:
    """Return a limit of tokens per completion that cuts off no answer and fits the model's window.

    Args:
        longest_bytes: of the tasks' longest completion, UTF-8.
        vocabulary: of the model; 0 if it is not known.
        window: longest text of the model in tokens; None if it has no limit.
    """
    if vocabulary >= LARGE_VOCABULARY:
        wanted = max(MIN_TOKENS, math.ceil(longest_bytes / 3))
    else:
        wanted = max(MIN_TOKENS, min(longest_bytes, SPELLED_BYTES), longest_bytes // 4)
    if window is None:
        return wanted
    level: SuiteLevel = next(
        (each for each, max_bytes in COMPLETION_BYTES.items() if longest_bytes <= max_bytes), "full"
    )
    return min(wanted, max(_MIN_ROOM, window - PROMPT_TOKENS[level]))


def level_for(parameters: int) -> SuiteLevel:
    """Return the suite's level for a model with this number of parameters."""
    return next(level for level, least in _SMALLEST.items() if parameters >= least)
