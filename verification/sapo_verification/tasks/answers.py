"""Extraction of an answer that a scorer may see from untrusted bytes.

The bounds prevent every hang that a search for hostile answers found, except in scorers that evaluate text.
The text policy (stage 9) is applied first.
"""

import re
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG, TextFault, fault_of, read

MAX_ANSWER_CHARACTERS: Final = 2048
"""The longest honest answer, a grid of thirty by thirty cells, has 1,799."""

MAX_DIGIT_RUN: Final = 64
"""The longest honest number has 24 digits; a number of thousands of digits costs quadratic time to parse."""

WHITESPACE: Final = " \t\r\n"
"""ASCII only: which other characters are spaces depends on the Unicode release."""

_DIGIT_RUN: Final = re.compile(f"[0-9]{{{MAX_DIGIT_RUN + 1}}}")

# No family's answer looks like this, but a scorer that evaluates answers would run it: a dunder name, or a
# call of a function that has effects outside the expression. The pattern is narrow, for a match is evidence
# against the author.
_CODE: Final = re.compile(
    r"__[a-z]+__|\b(?:eval|exec|compile|open|getattr|globals|system|popen|exit|quit)[ ]?\(", re.ASCII
)


def extract(family: Family, completion: bytes) -> str | None:
    """Return a completion's answer by the family's rule, stripped; None if there is none to score."""
    if fault_of(family, completion) is not None:
        return None
    answer = _answer(family, completion.decode())
    if len(answer) > MAX_ANSWER_CHARACTERS or _DIGIT_RUN.search(answer):
        return None
    return answer.strip(WHITESPACE) or None


def decode(family: Family, completion: bytes) -> str | None:
    """Return a completion's text; None if it is too long, not UTF-8, or has invisible characters."""
    text = read(family, completion)
    return None if isinstance(text, TextFault) else text


def holds_code(family: Family, completion: bytes) -> bool:
    """Whether a completion's answer looks like Python code for a scorer that evaluates answers.

    The text around an answer reaches no scorer, and honest models write programs when they reason.
    """
    return _CODE.search(_answer(family, completion.decode("utf-8", errors="replace"))) is not None


def _answer(family: Family, text: str) -> str:
    """Return the answer in a text by the family's rule; empty if it has none."""
    return text if family.answer == "plain" else text.partition(OPEN_TAG)[2].partition(CLOSE_TAG)[0]
