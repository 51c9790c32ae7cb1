"""Scorers that compare an answer's text or number with the oracle's, regardless of layout and notation.

Every form is a regular expression over ASCII; nothing here depends on a Unicode release.
"""

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.entries import Entry, Scorer

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER: Final = str.maketrans(_UPPER, _LOWER)
_SPACE: Final = re.compile(r"[ \t\r\n]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,64}|[0-9]{1,3}(?:,[0-9]{3}){1,12})(?:\.[0-9]{0,64})?")
_SCIENTIFIC: Final = re.compile(r"[+-]?[0-9]{1,32}(?:\.[0-9]{0,32})?(?:[eE][+-]?[0-9]{1,2})?")
_HEXADECIMAL: Final = re.compile(r"-?0x[0-9a-f]{1,64}")
_FACTORS: Final = re.compile(r"[0-9]{1,9}(?: ?[×x*] ?[0-9]{1,9}){0,63}")
_REAL: Final = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_COMPLEX: Final = re.compile(f"(?:(-?{_REAL})(?![0-9.]*i))?(?: ?([+-]?) ?({_REAL})?i)?")
_RATIO: Final = re.compile(r"([0-9]{1,18}) ?/ ?([0-9]{1,18})")
_PROBABILITY: Final = re.compile(r"(?:[0-9]?\.[0-9]{1,64}|[0-9])(?:[eE]-?[0-9]{1,2})?")

PROBABILITY_TOLERANCE: Final = Fraction(1, 10_000)
"""Relative. The stock scorer's is absolute, so "0" is right wherever many coins are thrown."""

NO_ROOTS: Final = "none"
"""The answer that the prompt asks for where the stock scorer wants the empty string, which is no answer."""


def words(text: str) -> list[list[str]]:
    """Return the words of each line of a text; empty lines are dropped."""
    rows = text.replace("\r\n", "\n").split("\n")
    return [row for row in ([word for word in _SPACE.split(line) if word] for line in rows) if row]


def lower(text: str) -> str:
    """Return the text with ASCII letters in lower case."""
    return text.translate(_TO_LOWER)


def _words(answer: str, entry: Entry, family: Family) -> bool:
    return words(answer) == words(entry["answer"])


def _caseless(answer: str, entry: Entry, family: Family) -> bool:
    return lower(answer) == lower(entry["answer"].strip())


def _list(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the lists in brackets are equal; spaces are ignored, quotes may be single or double."""
    return _list_text(answer) == _list_text(entry["answer"])


def _list_text(text: str) -> str:
    return _SPACE.sub("", text).replace('"', "'")


def _sentence(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the oracle's sentence, with its full stop or without."""
    return bool(answer.removesuffix(".") == entry["answer"].removesuffix("."))


def _number(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer has the same value in plain notation; thousands may be separated by commas."""
    return _NUMBER.fullmatch(answer) is not None and _value(answer) == _value(str(entry["answer"]))


def _value(text: str) -> Decimal:
    return Decimal(text.replace(",", ""))


def _significant(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the first three significant figures and the magnitude are equal, rounded half to even."""
    return _SCIENTIFIC.fullmatch(answer) is not None and _rounded(answer) == _rounded(str(entry["answer"]))


def _rounded(text: str) -> str:
    return f"{Decimal(text):.2e}"


def _hexadecimal(answer: str, entry: Entry, family: Family) -> bool:
    text = lower(answer)
    return _HEXADECIMAL.fullmatch(text) is not None and int(text, 16) == int(entry["answer"], 16)


def _factors(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer has the prime factors with their multiplicities, in any order."""
    if not _FACTORS.fullmatch(answer):
        return False
    return sorted(map(int, re.findall("[0-9]+", answer))) == sorted(entry["metadata"]["factors"])


def _complex(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the number ``a + bi``; a part that is zero may be left out."""
    found = _COMPLEX.fullmatch(answer)
    if found is None or not answer:
        return False
    real, sign, size = found[1], found[2], found[3]
    imaginary = Decimal(f"{sign or ''}{size or '1'}") if answer.endswith("i") else Decimal(0)
    wanted = [Decimal(str(part)) for part in entry["metadata"]["result"]]
    return [Decimal(real or 0), imaginary] == wanted


def _probability(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the exact fraction, or a decimal that is right to four figures."""
    exact = Fraction(*(entry["metadata"]["rational"][part] for part in ("numerator", "denominator")))
    if ratio := _RATIO.fullmatch(answer):
        return Fraction(int(ratio[1]), int(ratio[2])) == exact
    if not _PROBABILITY.fullmatch(answer):
        return False
    return abs(Fraction(answer) - exact) <= exact * PROBABILITY_TOLERANCE


def _roots(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer has all real roots to four decimal places, separated by commas, or ``none``."""
    wanted = sorted(Decimal(str(root)) for root in entry["metadata"]["real_solutions"])
    if not wanted or lower(answer) == NO_ROOTS:
        return not wanted and lower(answer) == NO_ROOTS
    parts = [part.strip(" ") for part in answer.split(",")]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        return False
    return len(parts) == len(wanted) and all(
        abs(Decimal(part) - root) <= Decimal("0.0001")
        for part, root in zip(sorted(parts, key=Decimal), wanted, strict=True)
    )


SCORERS: Final[dict[str, Scorer]] = {
    "words/1": _words,
    "caseless/1": _caseless,
    "list/1": _list,
    "sentence/1": _sentence,
    "number/1": _number,
    "significant/1": _significant,
    "hexadecimal/1": _hexadecimal,
    "factors/1": _factors,
    "complex/1": _complex,
    "probability/1": _probability,
    "roots/1": _roots,
}
