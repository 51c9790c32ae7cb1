"""Text policy (stage 9): what a completion must not contain to earn a reward.

A completion with a fault earns 0 on every node, its author's included (``answers.extract``). That alone is no
evidence against the author, since all faults but one happen to honest policies: exceeding the length,
repetition, two answers, a truncated character. The exception is invisible text. A policy hardly ever samples
it, and it can be used to plant phrases; a group with more than ``MAX_HIDDEN_SHARE`` of it is refused, with
soft evidence against its author's account.

The table is explicit because Unicode's categories change between Python releases, and a rollout must
earn the same on every node. All checks take time linear in the text.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.words import prose_windows, words_of

_PICTURED: Final = "\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
"""Signs of which the variation selector U+FE0F makes a picture; `#`, `*` and digits before a keycap, too."""

HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    f"|(?<![#*0-9{_PICTURED}])\ufe0f|(?<=[#*0-9])\ufe0f(?!\u20e3)"
)
"""Controls but tab and line ends; soft hyphen; zero-width characters and joiners; bidirectional marks,
embeddings and isolates; byte order mark; variation selectors; interlinear and tag characters; noncharacters.
U+FE0F is in it only where it makes no picture: honest chat models write check marks and numbers with it.
Surrogates never leave a strict UTF-8 decoder."""

REPLACEMENT: Final = "\ufffd"
"""A decoder's replacement for an incomplete character; visible, and an accident of sampling."""

OPEN_TAG, CLOSE_TAG = "<answer>", "</answer>"

MAX_HIDDEN_SHARE: Final = 0.25
"""Two completions of eight may be an accident of a policy that samples bytes; three are not."""

LOOP_WORDS: Final = 8
"""Runs of eight words are repeated by accident in formulae, but not in half of a text."""

LOOP_SHARE: Final = 0.5
"""Above it most of the text occurs more than twice: it is a loop. Honest reasoning that quotes its
question and its result stays below it, and data (digits alone) does not count."""

LOOP_MIN_WINDOWS: Final = 32
"""A loop of fewer than forty words does no harm."""


class TextFault(StrEnum):
    """Reasons for which a completion earns 0, whatever its answer."""

    TOO_LONG = "longer than the family allows"
    NOT_UTF8 = "no UTF-8"
    GARBLED = "half a character"
    HIDDEN = "characters that cannot be seen"
    ANSWERS = "not exactly one answer"
    LOOP = "the same words again and again"


def fault_of(family: Family, completion: bytes) -> TextFault | None:
    """Return the fault of a completion's text, or None."""
    text = read(family, completion)
    if isinstance(text, TextFault):
        return text
    if family.answer == "tag" and not _has_one_answer(text):
        return TextFault.ANSWERS
    return TextFault.LOOP if _is_loop(_reasoning(family, text)) else None


def read(family: Family, completion: bytes) -> str | TextFault:
    """Return a completion's text, or the fault for which it must not be read."""
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
    """Return why a whole group is refused (``TEXT_POLICY``), or None."""
    hidden = sum(fault_of(family, completion) is TextFault.HIDDEN for completion in completions)
    if hidden <= MAX_HIDDEN_SHARE * len(completions):
        return None
    return f"{hidden} of {len(completions)} completions hold {TextFault.HIDDEN}"


def reasoning(family: Family, completion: bytes) -> str:
    """Return the text around the answer; empty if the completion is only an answer.

    Only this is compared with other text: the right answer is determined by its task, and two honest
    policies give the same one.
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
    return len(windows) >= LOOP_MIN_WINDOWS and repeated > LOOP_SHARE * len(windows)
