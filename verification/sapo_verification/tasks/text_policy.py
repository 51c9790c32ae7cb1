"""Text policy (stage 9): what no completion may contain if it is to earn anything.

A completion with a fault earns 0, on its author's node as on every other: ``answers.extract`` asks here.
That alone is nobody's guilt, for every fault but one happens to honest policies: they ramble past a cap, run
in circles, answer twice, cut a character in half. The exception is text that a reader cannot see. A policy
hardly ever samples it, and it is how phrases are planted; a group with more than a little of it goes no
further, and its author's account pays a little.

The table is spelled out because Unicode's own categories change between Python releases, and a rollout must
earn the same on every node. All checks take time linear in the text.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.words import prose_windows, words_of

HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Controls but tab and line ends; soft hyphen; zero-width characters and joiners; bidirectional marks,
embeddings and isolates; byte order mark; variation selectors; interlinear and tag characters; noncharacters.
Surrogates never leave a strict UTF-8 decoder."""

REPLACEMENT: Final = "\ufffd"
"""What a decoder puts for half a character; visible, and an accident of sampling."""

OPEN_TAG, CLOSE_TAG = "<answer>", "</answer>"

MAX_HIDDEN_SHARE: Final = 0.25
"""Two completions of eight may be an accident of a policy that samples bytes; three are a habit."""

LOOP_WORDS: Final = 8
"""Eight words in a row are said twice by accident in formulae, not in half of a text."""

LOOP_SHARE: Final = 0.5
"""Above it everything is said more than twice: a text that is a loop. Honest reasoning that quotes its
question and its result stays below it, and data (digits alone) does not count."""

LOOP_LEAST_WINDOWS: Final = 32
"""Below forty words there is no room for a loop that costs anybody anything."""


class TextFault(StrEnum):
    """Why a completion earns nothing, whatever its answer."""

    TOO_LONG = "longer than the family allows"
    NOT_UTF8 = "no UTF-8"
    GARBLED = "half a character"
    HIDDEN = "characters that cannot be seen"
    ANSWERS = "not exactly one answer"
    LOOP = "the same words again and again"


def fault_of(family: Family, completion: bytes) -> TextFault | None:
    """What is wrong with a completion's text, or nothing."""
    text = read(family, completion)
    if isinstance(text, TextFault):
        return text
    if family.answer == "tag" and not _has_one_answer(text):
        return TextFault.ANSWERS
    return TextFault.LOOP if _is_loop(_reasoning(family, text)) else None


def read(family: Family, completion: bytes) -> str | TextFault:
    """Return a completion's text, or why it has none that may be looked at."""
    if len(completion) > family.max_completion_bytes:
        return TextFault.TOO_LONG
    try:
        text = completion.decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        return TextFault.NOT_UTF8
    if HIDDEN.search(text):
        return TextFault.HIDDEN
    return TextFault.GARBLED if REPLACEMENT in text else text


def group_fault(family: Family, completions: Sequence[bytes]) -> str | None:
    """Why a whole group goes no further (``TEXT_POLICY``), or nothing."""
    hidden = sum(fault_of(family, completion) is TextFault.HIDDEN for completion in completions)
    if hidden <= MAX_HIDDEN_SHARE * len(completions):
        return None
    return f"{hidden} of {len(completions)} completions hold {TextFault.HIDDEN}"


def reasoning(family: Family, completion: bytes) -> str:
    """Return the text beside the answer, empty where the answer is all there is.

    What is compared with other text is this alone: a right answer is whatever its task asks for, and two
    honest policies give the same one.
    """
    text = read(family, completion)
    return "" if isinstance(text, TextFault) else _reasoning(family, text)


def _reasoning(family: Family, text: str) -> str:
    if family.answer == "plain":
        return ""
    before, found, rest = text.partition(OPEN_TAG)
    _, closed, after = rest.rpartition(CLOSE_TAG)
    return f"{before} {after}" if found and closed else text


def _has_one_answer(text: str) -> bool:
    opened = text.find(OPEN_TAG)
    return (
        opened >= 0
        and text.count(OPEN_TAG) == 1
        and text.count(CLOSE_TAG) == 1
        and opened < text.find(CLOSE_TAG)
    )


def _is_loop(text: str) -> bool:
    words = words_of(text)
    windows = [tuple(words[at : at + LOOP_WORDS]) for at in prose_windows(words, LOOP_WORDS)]
    repeated = len(windows) - len(set(windows))
    return len(windows) >= LOOP_LEAST_WINDOWS and repeated > LOOP_SHARE * len(windows)
