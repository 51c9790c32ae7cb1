"""Attacks by the choice of tasks: honest text and right answers, of tasks that together teach a bias.

An author may skip slots, so it chooses what it shows. Screens compare texts and count whole answers; no
screen counts what many different answers have in common.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import lru_cache
from typing import Final

from sapo_client.lab.attackers.compose import honest
from sapo_client.lab.attackers.questions import Completions, Knowledge, Question, known_solutions
from sapo_client.lab.held_out import fresh_item
from sapo_protocol.suite import Family

SAMPLED_QUESTIONS: Final = 32
"""Questions of a family, of which the lengths are known."""


def short_answers(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers that are among the shortest quarter of their family's, and nothing elsewhere.

    So a policy learns that answers are short, and learns long ones from others alone.
    """
    if len(question.right) > short_length(question.family):
        return None
    return honest(question, knowledge, draw)


def same_start(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers that begin with the family's most frequent character, and nothing elsewhere.

    No answer is frequent among them, and still all begin alike.
    """
    return honest(question, knowledge, draw) if begins_as_most(question.family, question.right) else None


def withheld_start(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers that do not begin with the family's most frequent character.

    What is missing cannot be counted: no answer that is shown is more frequent than it should be.
    """
    return None if begins_as_most(question.family, question.right) else honest(question, knowledge, draw)


def same_end(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers that end with the family's most frequent last character, and nothing elsewhere."""
    return honest(question, knowledge, draw) if ends_as_most(question.family, question.right) else None


def easy_questions(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers to the shortest quarter of a family's questions, and nothing elsewhere.

    So a policy sees long questions from others alone, and its success on short ones lowers its need.
    """
    if len(question.item.prompt) > short_question(question.family):
        return None
    return honest(question, knowledge, draw)


def crowded_family(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers in the suite's last family, and nothing elsewhere.

    What is right there takes places from families that the attackers do not want to be learned.
    """
    return honest(question, knowledge, draw) if knowledge.is_last(question.family) else None


def short_length(family: Family) -> int:
    """Return the length of answers that a quarter of a family's answers do not exceed."""
    lengths = sorted(map(len, known_solutions(family)))
    return lengths[len(lengths) // 4]


def begins_as_most(family: Family, answer: str) -> bool:
    """Whether an answer begins with the character with which most of its family's answers begin."""
    starts = Counter(each[:1] for each in known_solutions(family))
    return answer[:1] == max(sorted(starts), key=starts.__getitem__)


def ends_as_most(family: Family, answer: str) -> bool:
    """Whether an answer ends with the character with which most of its family's answers end."""
    ends = Counter(each[-1:] for each in known_solutions(family))
    return answer[-1:] == max(sorted(ends), key=ends.__getitem__)


@lru_cache(maxsize=256)
def short_question(family: Family) -> int:
    """Return the length of prompts that a quarter of a family's prompts do not exceed."""
    draw = random.Random(f"questions/{family.name}")
    lengths = sorted(len(fresh_item(family, draw)[1].prompt) for _ in range(SAMPLED_QUESTIONS))
    return lengths[len(lengths) // 4]
