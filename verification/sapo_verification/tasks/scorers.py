"""Own scorers: 1.0 for a full solution, 0.0 for everything else.

ReasoningGYM's scorers evaluate answers as code (binary_matrix), and reward nonsense (fraction_simplification,
propositional_logic), the oracle's answer among other words (every task with the base scorer) and any weekday
(calendar_arithmetic). Under group normalisation even a small partial reward becomes a full-size advantage, so
there are no partial rewards. No scorer here evaluates, imports or compiles anything; each one takes time
linear in the answer, whose length ``answers.extract`` has bounded, but those of polynomials, which count
what they multiply (``score_arithmetic``).
"""

import json
import re
from decimal import Context, Decimal
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks import score_arithmetic as scorers_arithmetic
from sapo_verification.tasks import score_puzzles as scorers_puzzles
from sapo_verification.tasks import score_stock as scorers_stock
from sapo_verification.tasks import score_text as scorers_text
from sapo_verification.tasks.entries import Entry, Scorer
from sapo_verification.tasks.score_logic import follows

_PLAIN_FRACTION: Final = re.compile(r"([0-9]+) ?/ ?([0-9]+)")
_LATEX_FRACTION: Final = re.compile(r"\\d?frac ?\{ ?([0-9]+) ?\} ?\{ ?([0-9]+) ?\}", re.I | re.A)
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})(?:[eE][+-]?[0-9]{1,2})?")
_EXACT: Final = Context(prec=400)
"""Two numbers of 64 digits on either side of the point, shifted by up to 99, subtract without rounding."""

SCORED_AS_ZERO: Final = (ArithmeticError, ValueError, LookupError, TypeError, AttributeError)
"""Errors that a scorer may raise on a senseless answer; any other one ends the worker."""


def score(family: Family, answer: str | None, entry: Entry) -> float:
    """Return the reward of one answer, 0.0 or 1.0.

    Raises:
        KeyError: the family names a scorer that does not exist.
    """
    scorer = SCORERS[family.scorer]
    if answer is None:
        return 0.0
    try:
        return 1.0 if scorer(answer, entry, family) else 0.0
    except SCORED_AS_ZERO:
        return 0.0


def _exact(answer: str, entry: Entry, family: Family) -> bool:
    return bool(answer == entry["answer"])


def _cells(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the row of one-digit cells, with or without spaces between them."""
    return bool(answer.replace(" ", "") == entry["answer"].replace(" ", ""))


def _rows(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer has the rows of one-digit cells, separated by line ends or ``/``."""
    return _matrix(answer) == _matrix(entry["answer"])


def _fraction(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the fraction in lowest terms, plain or in LaTeX, in any style of question."""
    inner = answer.strip("$").strip(" ")
    found = _PLAIN_FRACTION.fullmatch(inner) or _LATEX_FRACTION.fullmatch(inner)
    if found is None:
        return False
    data = entry["metadata"]
    wanted = (data["simplified_numerator"], data["simplified_denominator"])
    return bool((int(found[1]), int(found[2])) == wanted)


def _decimal(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is within one unit of the last decimal place of the family's operands.

    The oracle rounds every intermediate result, so an exact solver may differ from it by that much.
    """
    if not _DECIMAL.fullmatch(answer):
        return False
    places = json.loads(family.config)["max_num_decimal_places"]
    difference = _EXACT.subtract(Decimal(answer), Decimal(entry["answer"]))
    return bool(abs(difference) <= Decimal(1).scaleb(-places))


def _calendar(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the weekday's English name or the count."""
    if _INTEGER.fullmatch(answer):
        return bool(str(int(answer)) == entry["answer"])
    return bool(answer == entry["answer"])


def _logic(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is a conclusion that earns its reward by the rules of ``score_logic``."""
    data = entry["metadata"]
    return follows(answer, data["premises"], frozenset(data["variables"]))


def _matrix(text: str) -> list[str]:
    rows = text.replace("\r\n", "\n").replace("/", "\n").split("\n")
    return [row.replace(" ", "") for row in rows]


SCORERS: Final[dict[str, Scorer]] = {
    "exact/1": _exact,
    "cells/1": _cells,
    "rows/1": _rows,
    "fraction/1": _fraction,
    "decimal/1": _decimal,
    "calendar/1": _calendar,
    "logic/1": _logic,
    **scorers_text.SCORERS,
    **scorers_puzzles.SCORERS,
    **scorers_arithmetic.SCORERS,
    **scorers_stock.SCORERS,
}
