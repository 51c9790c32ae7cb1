"""Worked solutions of the families' items at the level `worked`: short steps, then the answer in its tags.

Every step is a function of few characters, so that a policy of a million parameters learns it from few
examples; the answer alone would be one long computation without intermediate results. A worked solution is a
pure function of the item and earns 1.0 under the family's scorer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.compact import COMPACT
from sapo_verification.tasks.entries import Entry
from sapo_verification.tasks.generators import Item, solution
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

WORKED_LEVEL: Final = "worked"
"""The level whose items have worked solutions."""

STEP: Final = ","
ROW: Final = "/"
"""Separator between two steps."""


def bare(family: Family, item: Item) -> str | None:
    """Return the answer in its tags, without steps; None if the item has no solution."""
    answer = solution(family, item)
    return None if answer is None else f"{OPEN_TAG}{answer}{CLOSE_TAG}"


def step_separator(family: Family) -> str:
    """Return the separator between two steps of a family's worked solutions."""
    return ROW if family.name == "binary_matrix" else STEP


def has_worked_solution(family: Family) -> bool:
    """Whether this family's items have worked solutions."""
    return family.level == WORKED_LEVEL and family.name in WORKED_SOLUTIONS


def worked_solution(family: Family, item: Item) -> str | None:
    """Return the steps and the answer in its tags; None if the item has no solution.

    Raises:
        KeyError: this family has no worked solutions.
    """
    answer = bare(family, item)
    return None if answer is None else STEP.join(WORKED_SOLUTIONS[family.name](item.entry)) + answer


def _basic_arithmetic(entry: Entry) -> Iterator[str]:
    """Yield the columns of a sum of two numbers from the right, with carries: ``7+6:13``, ``4+8+1:13``."""
    one, other = re.findall(r"\d+", entry["metadata"]["expression"])
    width, carry = max(len(one), len(other)), 0
    for above, below in zip(reversed(one.zfill(width)), reversed(other.zfill(width)), strict=True):
        total = int(above) + int(below) + carry
        yield f"{above}+{below}{'+1' if carry else ''}:{total}"
        carry = total // 10


PRIMES: Final = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)


def _fraction_simplification(entry: Entry) -> Iterator[str]:
    """Yield the fraction, divided by one common prime after the other: ``2:42/63``, ``3:14/21``."""
    above, below = entry["metadata"]["numerator"], entry["metadata"]["denominator"]
    for prime in PRIMES:
        while above % prime == 0 == below % prime:
            above, below = above // prime, below // prime
            yield f"{prime}:{above}/{below}"


DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _calendar_arithmetic(entry: Entry) -> Iterator[str]:
    """Yield the offset's remainder by seven, digit by digit, then day after day: ``27:6``, ``Friday-6``."""
    day, _, offset = COMPACT["calendar_arithmetic"](entry).partition(" ")
    sign, left, rest = offset[0], offset[1], offset[2:]
    for digit in rest or ("",):
        value = int(left + digit)
        yield f"{value}:{value % 7}"
        left = str(value % 7)
    for days in range(int(left) + 1):
        place = DAYS.index(day) + (days if sign == "+" else -days)
        yield f"{DAYS[place % 7]}{sign}{int(left) - days}"


_LEAVES: Final = {"P": "1100", "Q": "1010"}


def _propositional_logic(entry: Entry) -> Iterator[str]:
    """Yield truth tables over P, Q = 11, 10, 01, 00, one connective at a time: ``P>Q:1011``."""
    premises = COMPACT["propositional_logic"](entry).removesuffix("; ?").split("; ")
    joined = ""
    for premise in premises:
        steps, table = _tables(premise)
        yield from steps
        if joined:
            table = _table(joined, "&", table)
            yield f"&{joined}:{table}"
        joined = table


def _tables(formula: str) -> tuple[list[str], str]:
    """Return the steps to the truth table of a formula over P and Q, and the table."""
    if formula in _LEAVES:
        return [], _LEAVES[formula]
    left, connective, right = _split(formula)
    (before, one), (after, other) = _tables(left) if left else ([], ""), _tables(right)
    table = _table(one, connective, other) if one else _negated(other)
    steps = [*before, *after]
    return [*steps, f"{one}{connective}{other}:{table}" if steps else f"{formula}:{table}"], table


def _split(formula: str) -> tuple[str, str, str]:
    """Return left operand, outermost connective and right operand; a negation has no left operand."""
    depth = 0
    for place, symbol in enumerate(formula):
        depth += (symbol == "(") - (symbol == ")")
        if depth == 0 and symbol in "&|>=":
            return _stripped(formula[:place]), symbol, _stripped(formula[place + 1 :])
    return "", formula[0], _stripped(formula[1:])


def _negated(table: str) -> str:
    return "".join("10"[int(bit)] for bit in table)


def _stripped(formula: str) -> str:
    return formula[1:-1] if formula.startswith("(") and formula.endswith(")") else formula


def _table(left: str, connective: str, right: str) -> str:
    return "".join(_bit(one == "1", connective, other == "1") for one, other in zip(left, right, strict=True))


def _bit(left: bool, connective: str, right: bool) -> str:
    value = {"&": left and right, "|": left or right, ">": right or not left, "=": left == right}[connective]
    return str(int(value))


FAR: Final = 9
"""Distance in a row without a zero."""


def _binary_matrix(entry: Entry) -> Iterator[str]:
    """Yield each cell's distance to the nearest zero in its own row, row by row."""
    rows: Sequence[Sequence[int]] = entry["metadata"]["matrix"]
    yield ROW.join("".join(str(_nearest(row, place)) for place in range(len(row))) for row in rows)


def _nearest(row: Sequence[int], place: int) -> int:
    return min((abs(place - other) for other, cell in enumerate(row) if cell == 0), default=FAR)


def _bf(entry: Entry) -> Iterator[str]:
    """Yield code and character of every output: ``99c``, ``108l``."""
    yield from (f"{ord(letter)}{letter}" for letter in entry["answer"])


WORKED_SOLUTIONS: Final[Mapping[str, Callable[[Entry], Iterator[str]]]] = {
    "basic_arithmetic": _basic_arithmetic,
    "fraction_simplification": _fraction_simplification,
    "calendar_arithmetic": _calendar_arithmetic,
    "propositional_logic": _propositional_logic,
    "binary_matrix": _binary_matrix,
    "bf": _bf,
}
