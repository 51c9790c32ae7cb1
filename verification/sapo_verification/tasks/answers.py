"""From a stranger's bytes to an answer that a scorer may see, or to nothing.

The bounds stop every hang that a search for hostile answers found outside the scorers that evaluate text.
What text may look like at all is the text policy's (stage 9).
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
"""ASCII alone: what else counts as a space depends on the Unicode release."""

_DIGIT_RUN: Final = re.compile(f"[0-9]{{{MAX_DIGIT_RUN + 1}}}")

# No family's answer looks like this, but a scorer that evaluates answers would run it: a dunder name, or the
# call of a function that reaches out of the expression. Narrow, for it is held against the author.
_CODE: Final = re.compile(
    r"__[a-z]+__|\b(?:eval|exec|compile|open|getattr|globals|system|popen|exit|quit)[ ]?\(", re.ASCII
)


def extract(family: Family, completion: bytes) -> str | None:
    """Return a completion's answer by the family's rule, stripped; None where there is nothing to score."""
    if fault_of(family, completion) is not None:
        return None
    text = completion.decode()
    answer = text if family.answer == "plain" else text.partition(OPEN_TAG)[2].partition(CLOSE_TAG)[0]
    if len(answer) > MAX_ANSWER_CHARACTERS or _DIGIT_RUN.search(answer):
        return None
    return answer.strip(WHITESPACE) or None


def decode(family: Family, completion: bytes) -> str | None:
    """Return a completion's text; None if it is too long, no UTF-8, or holds characters that cannot be seen."""
    text = read(family, completion)
    return None if isinstance(text, TextFault) else text


def holds_code(completion: bytes) -> bool:
    """Whether a completion reads like Python meant for a scorer that evaluates answers."""
    return _CODE.search(completion.decode("utf-8", errors="replace")) is not None
