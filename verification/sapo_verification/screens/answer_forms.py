"""Spellings of answers: a stranger's right answer is imitated only as most accounts would spell it.

Scorers accept one answer in many spellings: zeros before a number, signs around it, other letters' case,
spaces and brackets that say nothing. Whoever shows right answers can put a mark or any number of characters
into them so, and a policy learns the spelling with the answer. What is compared is coarse, for answers differ
from task to task: which kinds of characters there are, and whether the answer is much longer than others.
Until enough accounts have shown answers, a spelling that is odd by itself waits.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

MIN_GROUPS: Final = 16
"""With fewer an account is not asked: it has shown only few of the kinds of answers that a family has."""

LENGTHS: Final = (16, 64, 256, 1024)
"""Characters; an honest answer is four times as long as most others now and then."""

ODD_LENGTHS: Final = frozenset(f"{length} characters" for length in LENGTHS[1:])
"""Where an answer is so long, prompts of its family are."""

NEGATIVE: Final = frozenset("-")
"""Some families have few negative numbers, and one sign alone lengthens nothing."""

_TOKEN: Final = re.compile(r"[0-9]+|[^\W\d_]+|\s+|.", re.DOTALL)


def is_odd(run: str) -> bool:
    """Whether a kind only lengthens an answer or varies its letters: few families have it."""
    is_repeated = run.endswith("+") and run != "+"
    return is_repeated or run in ("zeros", "mixed", "spaces") or run in ODD_LENGTHS


def answer_runs(completion: bytes) -> Iterator[str]:
    """Yield what is compared of an answer: the kinds of its tokens, and lengths that it has at least."""
    text = completion.decode("utf-8", "replace")
    _, opened, rest = text.partition(OPEN_TAG)
    answer = (rest.partition(CLOSE_TAG)[0] if opened else text).strip()
    if not answer:
        return
    yield from set(_kinds(answer)) - NEGATIVE
    yield from (f"{length} characters" for length in LENGTHS if len(answer) >= length)


def _kinds(answer: str) -> Iterator[str]:
    """Yield the kind of each token: of a number, a word, white space, or of a sign and its repetition."""
    before = ""
    for part, same in groupby(_TOKEN.findall(answer)):
        many = len(list(same)) > 1
        yield _kind(part, is_fraction=before == ".") + ("+" if many else "")
        before = part


def _kind(part: str, *, is_fraction: bool) -> str:
    if part[0] in "0123456789":
        return "number" if is_fraction or part == "0" or part[0] != "0" else "zeros"
    if part.isspace():
        return repr(part) if len(part) == 1 else "spaces"
    if not part.isalpha():
        return part
    cases = (("lower", part.islower()), ("upper", part.isupper()), ("title", part.istitle()))
    return next((name for name, has in cases if has), "mixed")
