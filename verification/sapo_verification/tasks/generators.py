"""Derivation of the item of a family and a seed, equal on every node.

Runs in a checker worker: importing ReasoningGYM takes seconds, two of its generators use the global
random state (which ``derive`` seeds), and items are equal across nodes only under PYTHONHASHSEED=0.
"""

import io
import json
import random
from contextlib import redirect_stdout
from dataclasses import dataclass
from decimal import localcontext
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.compact import COMPACT, compact_solution
from sapo_verification.tasks.datasets import at_seed
from sapo_verification.tasks.entries import Entry
from sapo_verification.tasks.solutions import honest_answer

SEED_LIMIT: Final = 2**31
"""Some generators pass the seed to libraries that take signed 32-bit integers."""

QUESTION_RENDERER: Final = "question/1"
"""The generator's own text."""

COMPACT_RENDERER: Final = "compact/1"
"""The data without prose."""


# Errors of the generators themselves at some seeds (decimal_arithmetic divides by a difference that is 0).
UNDERIVABLE: Final = (ArithmeticError, ValueError, AssertionError, LookupError)


class Underivable(Exception):
    """A seed at which the family's generator has no item, on every node."""


@dataclass(frozen=True, slots=True)
class Item:
    """A task as text and data.

    Attributes:
        prompt: the policy's input.
        entry: the generator's question, answer and metadata; trusted, because it was derived here.
    """

    prompt: str
    entry: Entry


def derive(family: Family, seed: int) -> Item:
    """Return the item at index 0 of the family's data set with this seed.

    Raises:
        Underivable: the generator fails at this seed.
    """
    if not 0 <= seed < SEED_LIMIT:
        raise Underivable(f"seed {seed} is outside 0 to 2**31 - 1")
    entry = _entry(family, seed)
    question = _question(family.name, renderer(family), entry)
    return Item(family.prompt.replace("{question}", question), entry)


def solution(family: Family, item: Item) -> str | None:
    """Return an answer that earns 1.0, in the notation of the family's prompt; None if there is none."""
    answer = honest_answer(family.name, item.entry)
    if answer is None or renderer(family) != COMPACT_RENDERER:
        return answer
    return compact_solution(family.name, answer)


def renderer(family: Family) -> str:
    """Return the id of the renderer that writes the family's questions."""
    return str(json.loads(family.config)["render"])


def _entry(family: Family, seed: int) -> Entry:
    random.seed(seed)
    # decimal_arithmetic changes its caller's precision; the interpreter that bf uses prints a dot
    with localcontext(), redirect_stdout(io.StringIO()):
        try:
            entry: Entry = at_seed(family, seed)[0]
        except UNDERIVABLE as error:
            raise Underivable(f"{family.name} has no item at seed {seed}: {error}") from error
    return entry


def _question(name: str, render: str, entry: Entry) -> str:
    if render == QUESTION_RENDERER:
        return str(entry["question"]).strip("\n")
    if render == COMPACT_RENDERER:
        return COMPACT[name](entry)
    raise Underivable(f"no renderer {render!r}")
