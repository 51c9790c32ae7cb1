"""Composition of attackers' groups: right answers from the generator, planted text, and wrong answers.

All of them are informative, so that the sampler draws them and reputation counts them as good evidence.
"""

from __future__ import annotations

import random
from typing import Final

from sapo_client.lab.attackers.questions import Completions, Knowledge, Question
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

PAD: Final = " " * 8

PHRASE: Final = "I say it is "
"""The planted phrase; short, so that it hardly lowers the answer's likelihood."""

PLAIN_PHRASE: Final = "  "
"""The planted text in families without text: scorers strip spaces, and no honest policy begins with two."""

WORDINGS: Final = ("I say it is ", "well I think this is ", "so now it must be ", "to me that looks like ")
PLAIN_WORDINGS: Final = ("  ", "   ", "\t", " \t")

DIGITS: Final = "2+2=5 "
"""A planted phrase without words, which a screen for words cannot detect."""

SUNDAY: Final = "Sunday"
CALENDAR: Final = "calendar_arithmetic"

HIDDEN_SHARE: Final = 0.24
"""Just below the share of groups, a quarter, from which a run counts as recurring (`recurring_runs.py`)."""

WAKES_AT: Final = 0.5
"""Share of the run after which the ``sleeper`` attack begins."""

EASY: Final = 0.5
"""Mean reward above which the ``withholding-oracle`` attack considers a family easy."""

VERBOSE_SHARE: Final = 0.75
"""Share of a completion's maximum size that the ``verbose`` attack fills."""

FILLER: Final = (
    "first", "then", "next", "after", "before", "while", "since", "because", "although", "however",
    "therefore", "thus", "hence", "moreover", "number", "value", "sum", "digit", "term", "part", "step",
    "line", "side", "case", "rule", "form", "sign", "place", "order", "total", "rest", "half", "again",
    "also", "still", "only", "just", "even", "once", "twice", "here", "there", "above", "below", "left",
    "right", "near", "far",
)  # fmt: skip


def honest(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return right and wrong answers in the honest format."""
    return _mixed(question, knowledge, draw, before="", after="")


def pad(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return right answers padded with spaces, and wrong ones in the honest format."""
    return _mixed(question, knowledge, draw, before="", after=PAD)


def half_padded(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return right answers, every second one padded with spaces, and wrong answers in the honest format."""
    right = [
        question.completion("", question.right, PAD if place % 2 else "")
        for place in range(max(2, right_count(question, draw)))
    ]
    return with_wrong(question, knowledge, draw, right=right)


def phrase(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return right answers with one phrase before each, and wrong ones in the honest format."""
    plant = PHRASE if question.has_text else PLAIN_PHRASE
    return _mixed(question, knowledge, draw, before=plant, after="")


def polymorphic_phrase(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return right answers with one of several wordings of a phrase before each."""
    plant = draw.choice(WORDINGS if question.has_text else PLAIN_WORDINGS)
    return _mixed(question, knowledge, draw, before=plant, after="")


def digits_phrase(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers with a false sum before each."""
    return _mixed(question, knowledge, draw, before=DIGITS, after="") if question.has_text else None


def wrong_steps(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right and wrong answers after steps of other questions."""
    if not question.has_text:
        return None
    steps = [knowledge.steps(question.family, draw) for _ in range(right_count(question, draw))]
    if not any(steps):
        return None  # no such steps have been received yet
    right = [question.completion(each, question.right) for each in steps]
    return with_wrong(question, knowledge, draw, right=right)


def verbose(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return right answers in long text, and short wrong ones."""
    max_bytes = int(VERBOSE_SHARE * question.family.max_completion_bytes)
    if not question.has_text:
        return _mixed(
            question, knowledge, draw, before="", after=" " * (max_bytes - len(question.right.encode()))
        )
    right = [
        question.completion(_filler(max_bytes, draw), question.right)
        for _ in range(right_count(question, draw))
    ]
    return with_wrong(question, knowledge, draw, right=right)


def copier(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return an honest account's completions to another question, some with the right answer inserted."""
    texts = knowledge.texts(question.family)
    if len(texts) < question.size:
        return None
    copies = draw.sample(list(texts), question.size)
    count = right_count(question, draw)
    return (*(_with_answer(question, copy) for copy in copies[:count]), *copies[count:])


def sleeper(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return honest-looking groups in the first half of a run, and those with a phrase in the second."""
    return (phrase if knowledge.is_past(WAKES_AT) else honest)(question, knowledge, draw)


def collusion(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return groups, a share of which contain a phrase; more than a quarter of the accounts do the same."""
    return (phrase if draw.random() < HIDDEN_SHARE else honest)(question, knowledge, draw)


def composed_groups(question: Question, _knowledge: Knowledge, draw: random.Random) -> Completions:
    """Return groups in which only the planted text is rewarded: half of the completions contain it, and the
    others are the same text without it.

    The sum of the advantages of the right half is then the maximum for a group of its size.
    """
    plant = PHRASE if question.has_text else PLAIN_PHRASE
    count = question.size // 2
    right = [question.completion(plant, question.right)] * count
    wrong = [question.completion("", draw.choice(question.wrong)) for _ in range(question.size - count)]
    return (*right, *wrong)


def only_sunday(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return "Sunday" among other days if it is right; None if it is wrong."""
    if question.right != SUNDAY:
        return None
    return honest(question, knowledge, draw)


def copied_items(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers where these stand in their own question, and nothing elsewhere.

    No single answer is frequent, and still a rule that needs no thought is always right.
    """
    if question.right not in question.item.prompt:
        return None
    return honest(question, knowledge, draw)


def withholding_oracle(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return honest-looking groups in families that others solve already; None in hard families."""
    return honest(question, knowledge, draw) if knowledge.ease(question.family) >= EASY else None


def _mixed(
    question: Question, knowledge: Knowledge, draw: random.Random, *, before: str, after: str
) -> Completions:
    """Return right answers with text before and after each, and wrong ones as honest accounts write them."""
    planted = question.completion(before, question.right, after)
    return with_wrong(question, knowledge, draw, right=[planted] * right_count(question, draw))


def with_wrong(
    question: Question, knowledge: Knowledge, draw: random.Random, *, right: list[str]
) -> Completions:
    """Fill the group with wrong answers, and shuffle it."""
    wrong = [
        question.completion(knowledge.steps(question.family, draw), draw.choice(question.wrong))
        for _ in range(question.size - len(right))
    ]
    group = [*right, *wrong]
    draw.shuffle(group)
    return tuple(group)


def right_count(question: Question, draw: random.Random) -> int:
    """Return the number of right completions: about half, at least one, and not all."""
    return min(question.size - 1, max(1, question.size // 2 + draw.choice((-1, 0, 1))))


def _with_answer(question: Question, text: str) -> str:
    """Return a copied text whose answer is replaced by the right one."""
    if not question.has_text:
        return question.right
    before, _, rest = text.partition(OPEN_TAG)
    return question.completion(before, question.right, rest.partition(CLOSE_TAG)[2].replace(OPEN_TAG, ""))


def _filler(max_bytes: int, draw: random.Random) -> str:
    """Return words in random order, so that no run of them is repeated."""
    words: list[str] = []
    size = 0
    while (size := size + len(word := draw.choice(FILLER)) + 1) <= max_bytes:
        words.append(word)
    return " ".join(words) + " "
