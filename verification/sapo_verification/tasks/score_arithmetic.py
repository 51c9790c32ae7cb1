"""Scorers of expressions over given numbers (countdown, 24) and of polynomials, with a parser of our own.

The stock scorers hand the answer to ``sympy.parse_expr``, which runs it. This parser knows numbers, names of
one letter, ``+ - * / **`` and parentheses, and works in exact rational arithmetic under bounds. All of them
are counts, the same on every machine; an answer beyond one of them is wrong.

Grammar::

    sum     := term ( ("+" | "-") term )*
    term    := sign ( ("*" | "/") sign )*
    sign    := "-" sign | power
    power   := atom ( "**" digits )?
    atom    := digits | letter | "(" sum ")"

A value is a polynomial: a map from monomials (sorted letters, ``("x", "x")`` for x squared) to coefficients.
"""

import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.tasks.entries import Entry, Scorer

Monomial = tuple[str, ...]
Polynomial = Mapping[Monomial, Fraction]

_TOKEN: Final = re.compile(r" *(\*\*|[0-9]{1,12}|[A-Za-z]|[-+*/()])")
MAX_TOKENS: Final = 512
"""An honest answer has under 120; this also bounds the terms before multiplication."""
MAX_DEGREE: Final = 32
"""Three factors of degree three have nine; an antiderivative has eleven."""
MAX_TERMS: Final = 256
MAX_DEPTH: Final = 16
MAX_BITS: Final = 512
"""Per coefficient: forty times what honest ones need."""
MAX_PRODUCTS: Final = 2048
"""Products of two terms in one text: nineteen times what an honest answer needs, some 15 ms. Without it a
right answer could be made arbitrarily slow by a power of a sum that is multiplied by zero.
"""


def _uses_all(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is an expression over exactly the given numbers with the wanted value."""
    data = entry["metadata"]
    used = Counter(map(int, re.findall("[0-9]+", answer)))
    if "**" in answer or re.search("[A-Za-z]", answer) or used != Counter(data["numbers"]):
        return False
    return parse(answer) == _constant(Fraction(data.get("target", 24)))


def _polynomial(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer is the expanded product: every monomial once, no parentheses."""
    if "(" in answer:
        return False
    value = parse(answer)
    return value == parse(entry["answer"]) and _is_expanded(answer, value)


def _is_expanded(answer: str, value: Polynomial) -> bool:
    """Whether a text has as many terms as its polynomial, so that a copy of the question is not an answer."""
    return len(re.findall(r"[+-]", answer.lstrip(" +-"))) + 1 == max(len(value), 1)


def _antiderivative(answer: str, entry: Entry, family: Family) -> bool:
    """Whether the answer's derivative is the integrand; any constant may be added, also ``C``."""
    data = entry["metadata"]
    text = re.sub(r" ?\+ ?C$", "", answer)
    if set(re.findall("[A-Za-z]", text)) - {data["variable"]}:
        return False  # no right answer needs another letter, and sums of several have many more terms
    return derivative(parse(text)) == parse(data["integrand"])


def derivative(polynomial: Polynomial) -> Polynomial:
    """Return the derivative of a polynomial in one variable."""
    return {
        monomial[1:]: coefficient * len(monomial) for monomial, coefficient in polynomial.items() if monomial
    }


def parse(text: str) -> Polynomial:
    """Return the polynomial that a text denotes.

    Raises:
        ValueError: the text is no polynomial, or exceeds a bound.
    """
    tokens: list[str] = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or len(tokens) == MAX_TOKENS:
            raise ValueError(f"no expression at character {place}")
        tokens.append(found[1])
        place = found.end()
    parser = _Parser(tokens)
    value = parser.sum(0)
    if parser.place != len(tokens):
        raise ValueError("the expression ends too early")
    return value


def _constant(number: Fraction) -> Polynomial:
    return {(): number} if number else {}


def _add(left: Polynomial, right: Polynomial, factor: int) -> Polynomial:
    total = dict(left)
    for monomial, coefficient in right.items():
        total[monomial] = total.get(monomial, Fraction(0)) + factor * coefficient
    return _bounded(total)


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    total: dict[Monomial, Fraction] = {}
    for one, first in left.items():
        for other, second in right.items():
            monomial = tuple(sorted(one + other))
            total[monomial] = total.get(monomial, Fraction(0)) + first * second
    return _bounded(total)


def _divide(left: Polynomial, right: Polynomial) -> Polynomial:
    if right.keys() != {()}:
        raise ValueError("a divisor that is not a number, or zero")
    return _bounded({monomial: coefficient / right[()] for monomial, coefficient in left.items()})


def _bounded(polynomial: Polynomial) -> Polynomial:
    """Return the polynomial without terms of zero; raise if it exceeds a bound."""
    kept = {monomial: coefficient for monomial, coefficient in polynomial.items() if coefficient}
    for monomial, number in kept.items():
        if (
            len(monomial) > MAX_DEGREE
            or max(number.numerator.bit_length(), number.denominator.bit_length()) > MAX_BITS
        ):
            raise ValueError("a polynomial beyond the bounds")
    if len(kept) > MAX_TERMS:
        raise ValueError("too many terms")
    return kept


class _Parser:
    """Recursive-descent parser that counts every level of nesting and every product of terms."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.place, self.products = tokens, 0, 0

    def sum(self, depth: int) -> Polynomial:
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        value = self._term(depth)
        while self._next() in ("+", "-"):
            factor = 1 if self._take() == "+" else -1
            value = _add(value, self._term(depth), factor)
        return value

    def _term(self, depth: int) -> Polynomial:
        value = self._sign(depth)
        while self._next() in ("*", "/"):
            combine = self._multiply if self._take() == "*" else _divide
            value = combine(value, self._sign(depth))
        return value

    def _sign(self, depth: int) -> Polynomial:
        if self._next() != "-":
            return self._power(depth)
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        self._take()
        return _add({}, self._sign(depth + 1), -1)

    def _power(self, depth: int) -> Polynomial:
        base = self._atom(depth)
        if self._next() != "**":
            return base
        self._take()
        exponent = int(self._take())
        if exponent > MAX_DEGREE:
            raise ValueError("too high a power")
        return reduce(self._multiply, [base] * exponent, _constant(Fraction(1)))

    def _multiply(self, left: Polynomial, right: Polynomial) -> Polynomial:
        self.products += len(left) * len(right)
        if self.products > MAX_PRODUCTS:
            raise ValueError("too many products of terms")
        return _multiply(left, right)

    def _atom(self, depth: int) -> Polynomial:
        symbol = self._take()
        if symbol == "(":
            value = self.sum(depth + 1)
            if self._take() != ")":
                raise ValueError("a parenthesis stays open")
            return value
        return {(symbol,): Fraction(1)} if symbol.isalpha() else _constant(Fraction(int(symbol)))

    def _next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def _take(self) -> str:
        if self.place == len(self.tokens):
            raise ValueError("the expression ends too early")
        self.place += 1
        return self.tokens[self.place - 1]


SCORERS: Final[dict[str, Scorer]] = {
    "expression/1": _uses_all,
    "polynomial/1": _polynomial,
    "antiderivative/1": _antiderivative,
}
