"""Scorer of conclusions in propositional logic, by truth tables.

The generator asks for "a correct conclusion" and has no oracle. Entailment alone would reward a constant:
"P or Q" follows from the premises in 72 to 88 % of the suite's items. So a conclusion earns its reward only
if it

1. is entailed by the premises and says *all* that they say about the variables it names
   (it equals the premises' projection onto those variables), and is no tautology;
2. has one connective at most, so that joining the premises is no conclusion;
3. relates two variables, unless the premises relate no two: then one variable, as it is or negated.

The best constant is then right on about a quarter of the items.

A formula over n variables is held as its truth table: an integer of 2**n bits, one per assignment.
Connectives are bitwise operations on it.

Grammar, loosest first (``P → Q → R`` is refused: textbooks and the generator's parser group it differently)::

    formula    := implied ( ("↔" | "=") implied )*
    implied    := either ( ("→" | ">") either )?
    either     := both ( ("∨" | "|") both )*
    both       := negated ( ("∧" | "&") negated )*
    negated    := ("¬" | "~") negated | "(" formula ")" | variable
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import combinations
from typing import Final

MAX_FORMULA_CHARACTERS: Final = 256
"""The generator's premises have at most 41; this also bounds the recursion."""

MAX_DEPTH: Final = 32
"""Nested parentheses and negations; far below any stack limit."""

MAX_VARIABLES: Final = 8
"""Truth tables of 256 bits; the suite's levels have at most four variables."""

_SPELLINGS: Final = str.maketrans({"∧": "&", "∨": "|", "¬": "~", "→": ">", "↔": "=", " ": None})
_CONNECTIVES: Final = "&|>="
_SYMBOLS: Final = str.maketrans({"&": " ∧ ", "|": " ∨ ", "~": "¬", ">": " → ", "=": " ↔ "})


def follows(conclusion: str, premises: Sequence[str], variables: frozenset[str]) -> bool:
    """Whether a conclusion earns its reward, by the three rules above.

    Raises:
        ValueError: the conclusion is no formula over the variables.
    """
    tables = Tables(variables)
    text = _plain(conclusion)
    claimed = tables.parse(text)
    if claimed == tables.always or sum(map(text.count, _CONNECTIVES)) > 1:
        return False
    given = tables.join(premises)
    named = {name for name in variables if name in text}
    if claimed != tables.project(given, named):
        return False
    return len(named) > 1 or given == 0 or not tables.relates(given)


def strongest(premises: Sequence[str], variables: frozenset[str]) -> str | None:
    """Return the first conclusion that earns its reward, in ASCII; None if the premises allow none."""
    for conclusion in _candidates(sorted(variables)):
        if follows(conclusion, premises, variables):
            return conclusion
    return None


def in_symbols(formula: str) -> str:
    """Return an ASCII formula in the generator's notation."""
    return formula.translate(_SYMBOLS)


def _candidates(names: Sequence[str]) -> Iterable[str]:
    for left, right in combinations(names, 2):
        for connective in _CONNECTIVES:
            for signed_left in (left, f"~{left}"):
                yield from (f"{signed_left}{connective}{signed}" for signed in (right, f"~{right}"))
    for name in names:
        yield from (name, f"~{name}", f"{name}&~{name}")


def _plain(text: str) -> str:
    if len(text) > MAX_FORMULA_CHARACTERS:
        raise ValueError("the conclusion is too long")
    return text.translate(_SPELLINGS)


class Tables:
    """Truth tables over named variables."""

    def __init__(self, variables: frozenset[str]) -> None:
        if not 0 < len(variables) <= MAX_VARIABLES:
            raise ValueError(f"{len(variables)} variables")
        rows = 1 << len(variables)
        self.always = (1 << rows) - 1
        self.places = {name: place for place, name in enumerate(sorted(variables))}
        self.columns = {
            name: sum(1 << row for row in range(rows) if row >> place & 1)
            for name, place in self.places.items()
        }

    def parse(self, text: str) -> int:
        """Return the table of an ASCII formula without spaces."""
        parser = _Parser(text, self)
        table = parser.formula(0)
        if parser.place != len(text):
            raise ValueError(f"a formula ends before character {parser.place}")
        return table

    def join(self, premises: Iterable[str]) -> int:
        """Return the table of the conjunction of all premises."""
        return reduce(int.__and__, (self.parse(_plain(premise)) for premise in premises), self.always)

    def project(self, table: int, names: Iterable[str]) -> int:
        """Return the strongest statement about the named variables alone, for any values of the others."""
        for name in self.columns.keys() - set(names):
            table |= self._flip(table, name)
        return table

    def relates(self, table: int) -> bool:
        """Whether a table relates some two variables, beyond what it says about each of them."""
        return any(
            all(self._flip(pair, name) != pair for name in (left, right))
            for left, right in combinations(self.columns, 2)
            for pair in (self.project(table, (left, right)),)
        )

    def _flip(self, table: int, name: str) -> int:
        """Return the table with a variable negated."""
        column, shift = self.columns[name], 1 << self.places[name]
        return (table & column) >> shift | (table << shift) & column


class _Parser:
    """Recursive-descent parser of one text that counts every level of nesting."""

    def __init__(self, text: str, tables: Tables) -> None:
        self.text, self.tables, self.place = text, tables, 0

    def formula(self, depth: int) -> int:
        table = self._implied(depth)
        while self._take("="):
            table ^= self._implied(depth) ^ self.tables.always
        return table

    def _implied(self, depth: int) -> int:
        table = self._either(depth)
        return (table ^ self.tables.always) | self._either(depth) if self._take(">") else table

    def _either(self, depth: int) -> int:
        table = self._both(depth)
        while self._take("|"):
            table |= self._both(depth)
        return table

    def _both(self, depth: int) -> int:
        table = self._negated(depth)
        while self._take("&"):
            table &= self._negated(depth)
        return table

    def _negated(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ValueError("the conclusion is nested too deeply")
        if self._take("~"):
            return self._negated(depth + 1) ^ self.tables.always
        if self._take("("):
            table = self.formula(depth + 1)
            if not self._take(")"):
                raise ValueError("a parenthesis stays open")
            return table
        return self._variable()

    def _variable(self) -> int:
        name = self.text[self.place : self.place + 1]
        if name not in self.tables.columns:
            raise ValueError(f"no variable {name!r}")
        self.place += 1
        return self.tables.columns[name]

    def _take(self, symbol: str) -> bool:
        taken = self.text.startswith(symbol, self.place)
        self.place += taken
        return taken
