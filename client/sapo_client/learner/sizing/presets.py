"""Level of the tasks, and length of the answers, that suit a model of a given size."""

from __future__ import annotations

from typing import Final, Literal

SuiteLevel = Literal["nano", "easy", "full"]

_SMALLEST: Final[dict[SuiteLevel, int]] = {"full": 300_000_000, "easy": 50_000_000, "nano": 0}
"""Fewest parameters. Below 50 million nobody publishes a model that follows instructions, so such a one is
trained on the terse prompts of ``nano``; the paper trained half a billion parameters on its tasks in full.
Both are rules of thumb: ``sapo doctor`` says what share of groups teaches."""

NEW_TOKENS: Final[dict[SuiteLevel, int]] = {"nano": 64, "easy": 384, "full": 1024}
"""Tokens of a completion: a level's longest answer with its reasoning, at three to four bytes a token."""

PROMPT_TOKENS: Final[dict[SuiteLevel, int]] = {"nano": 64, "easy": 256, "full": 512}
"""Tokens of a usual prompt, chat template included."""


def level_for(parameters: int) -> SuiteLevel:
    """Return the suite's level for a model of so many parameters."""
    return next(level for level, least in _SMALLEST.items() if parameters >= least)
