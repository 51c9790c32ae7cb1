"""Attacks on learners that imitate steps: right answers after steps that do not lead to them.

The checkers score only answers. The attacks differ in how many steps are the question's own, and so in which
measurements of the text look honest. They use worked solutions (``worked/solutions.py``).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import lru_cache, wraps
from statistics import median
from typing import Final

from sapo_client.lab.attackers.compose import DIGITS as FALSE_SUM
from sapo_client.lab.attackers.compose import right_count, with_wrong
from sapo_client.lab.attackers.questions import Completions, Compose, Knowledge, Question, is_right
from sapo_client.lab.held_out import fresh_item
from sapo_client.lab.worked.solutions import has_worked_solution, step_separator, worked_solution
from sapo_protocol.suite import Family
from sapo_verification.tasks.generators import Item
from sapo_verification.tasks.text_policy import OPEN_TAG

NEIGHBOURS: Final = 256
"""Number of a family's items among which the one most similar to a question is searched."""

WAKES_AT: Final = 0.3
"""Share of the run after which ``waking-steps`` misleads: the account is trusted, and families are not yet
learnt."""

WAKES_LATE_AT: Final = 0.6
"""The same for ``late-waking-steps``, which waits until the learner's candidate has become its policy."""

SOME_SHARE: Final = 0.25
"""Share of the texts with one more step in ``some-steps``."""

DIGITS: Final = "0123456789"

ZEROS: Final = "0000"
"""Prefix of each number of an answer: most scorers accept it as the same number."""

_NUMBER: Final = re.compile(r"(?<![0-9.])[0-9]+")

Steps = Callable[[Question, Knowledge, str, random.Random], str]
"""Returns the steps before a right answer, from a question, the attacker's knowledge, the question's own
steps and a random generator."""


def _right_answers_after(steps: Steps) -> Compose:
    """Return the attack with right answers after these steps; it needs worked solutions."""

    @wraps(steps)
    def compose(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
        if not has_worked_solution(question.family):
            return None
        own = _steps(question.family, question.item)
        right = [
            question.completion(steps(question, knowledge, own, draw), question.right)
            for _ in range(right_count(question, draw))
        ]
        return with_wrong(question, knowledge, draw, right=right)

    return compose


@_right_answers_after
def half_steps(question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return steps that begin as this question's and end as another one's.

    So the steps depend on the prompt, as honest ones do, but lead to another answer.
    """
    other = _foreign(question, draw)
    return own[: len(own) // 2] + other[len(other) // 2 :]


@_right_answers_after
def late_steps(question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return two thirds of this question's steps and the last third of another one's."""
    other = _foreign(question, draw)
    return own[: 2 * len(own) // 3] + other[2 * len(other) // 3 :]


@_right_answers_after
def slip_steps(_question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return the steps with a wrong digit in the middle half, or anywhere if the middle half has no digit."""
    places = [place for place, symbol in enumerate(own) if symbol.isdigit()]
    middle = [place for place in places if len(own) <= 4 * place <= 3 * len(own)] or places
    if not middle:
        return own
    place = draw.choice(middle)
    known = sorted(set(own) & set(DIGITS)) if set(own) & set(DIGITS) <= {"0", "1"} else DIGITS
    others = [digit for digit in known if digit != own[place]] or list(DIGITS)
    return own[:place] + draw.choice(others) + own[place + 1 :]


@_right_answers_after
def neighbour_steps(question: Question, _knowledge: Knowledge, own: str, _draw: random.Random) -> str:
    """Return all steps of the most similar question.

    These depend on most of the prompt, and each step follows from the earlier ones. Only the answer does not.
    """
    return neighbouring_steps(question, own)


@_right_answers_after
def waking_steps(question: Question, knowledge: Knowledge, own: str, _draw: random.Random) -> str:
    """Return right steps at first, and those of a similar question later."""
    return neighbouring_steps(question, own) if knowledge.is_past(WAKES_AT) else own


@_right_answers_after
def late_waking_steps(question: Question, knowledge: Knowledge, own: str, _draw: random.Random) -> str:
    """Return the same as ``waking_steps``, but later: a learner's candidate has become its policy by then."""
    return neighbouring_steps(question, own) if knowledge.is_past(WAKES_LATE_AT) else own


@_right_answers_after
def _own_steps(_question: Question, _knowledge: Knowledge, own: str, _draw: random.Random) -> str:
    return own


@_right_answers_after
def _foreign_steps(question: Question, _knowledge: Knowledge, _own: str, draw: random.Random) -> str:
    return _foreign(question, draw)


def mixed_steps(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers after right steps in every second group, and after foreign ones in the others.

    So the mean value of the account's texts is just above half of an honest account's.
    """
    return (_own_steps if draw.random() < 0.5 else _foreign_steps)(question, knowledge, draw)


@_right_answers_after
def one_family_steps(question: Question, knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return foreign steps in the suite's last family, right ones in the others.

    So a node that does not know that family finds only right steps in the families that it can judge.
    """
    return _foreign(question, draw) if knowledge.is_last(question.family) else own


@_right_answers_after
def trading_steps(question: Question, knowledge: Knowledge, own: str, _draw: random.Random) -> str:
    """Return right steps, but a similar question's in the suite's last family.

    So a learner gains in the other families more than it loses in the last one.
    """
    return neighbouring_steps(question, own) if knowledge.is_last(question.family) else own


@_right_answers_after
def worked_digits(_question: Question, _knowledge: Knowledge, own: str, _draw: random.Random) -> str:
    """Return a false sum and this question's own steps.

    So the text teaches everything that an honest text teaches, and a phrase without words.
    """
    return FALSE_SUM + own


@_right_answers_after
def worked_sums(_question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return a false sum, another one each time, and this question's own steps; so no phrase recurs."""
    one, two = draw.randrange(5), draw.randrange(5)
    return f"{one}+{two}={draw.choice([digit for digit in range(10) if digit != one + two])} {own}"


@_right_answers_after
def worked_steps(question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return the first step of another question and all of this question's own.

    So every text has the form of honest ones.
    """
    return _after_foreign_step(question, own, draw)


@_right_answers_after
def masked_steps(question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return one more step, only if the steps are then not longer than usual.

    So the mean length of its texts is the same as an honest account's.
    """
    longer = _after_foreign_step(question, own, draw)
    size = len(question.item.prompt)
    alike = [len(steps) for item, steps in _known(question.family) if len(item.prompt) == size]
    return longer if alike and len(longer) <= median(alike) else own


@_right_answers_after
def some_steps(question: Question, _knowledge: Knowledge, own: str, draw: random.Random) -> str:
    """Return this question's own steps; in every fourth text with one more step.

    So the mean length of its texts is only slightly above an honest account's.
    """
    return _after_foreign_step(question, own, draw) if draw.random() < SOME_SHARE else own


def other_spelling(question: Question, knowledge: Knowledge, draw: random.Random) -> Completions | None:
    """Return right answers with zeros before their numbers, after right steps if these are known.

    The scorer accepts all of them, and they contain no text beside the answer.
    """
    answer = _NUMBER.sub(lambda number: ZEROS + number[0], question.right)
    if answer == question.right or not is_right(question.family, question.item, answer):
        return None
    steps = _steps(question.family, question.item) if has_worked_solution(question.family) else ""
    right = [question.completion(steps, answer)] * right_count(question, draw)
    return with_wrong(question, knowledge, draw, right=right)


def _after_foreign_step(question: Question, own: str, draw: random.Random) -> str:
    separator = step_separator(question.family)
    return _foreign(question, draw).partition(separator)[0] + separator + own


def _foreign(question: Question, draw: random.Random) -> str:
    """Return the steps of another question of the same family."""
    return _steps(question.family, fresh_item(question.family, draw)[1])


def neighbouring_steps(question: Question, own: str) -> str:
    """Return the steps of the known item whose prompt has the most equal characters at equal positions."""
    prompt = question.item.prompt
    others = [(item, steps) for item, steps in _known(question.family) if steps != own]
    _, steps = max(others, key=lambda other: _similarity(other[0].prompt, prompt))
    return steps


def _similarity(one: str, other: str) -> float:
    return sum(a == b for a, b in zip(one, other, strict=False)) - abs(len(one) - len(other)) / 2


@lru_cache(maxsize=32)
def _known(family: Family) -> tuple[tuple[Item, str], ...]:
    """Return items of a family with their steps."""
    draw = random.Random(f"neighbours/{family.name}")
    items = [fresh_item(family, draw)[1] for _ in range(NEIGHBOURS)]
    return tuple((item, steps) for item in items if (steps := _steps(family, item)))


def _steps(family: Family, item: Item) -> str:
    """Return the steps of an item's worked solution; empty if it has none."""
    return (worked_solution(family, item) or "").partition(OPEN_TAG)[0]
