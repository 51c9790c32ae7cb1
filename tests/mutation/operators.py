"""Mutants of a Python module: its source with one rule broken, made from the syntax tree.

They break presence (a guard or a call is removed, a condition negated, a bound moved by one) and order: two
neighbouring guards or checking calls, or one of them and a change of an object's state, change places. They
confuse what is told (another member of an enumeration, another argument's place), and remove what holds when
something fails or runs at the same time: an exception's handler, a ``finally``, a lock. In formulas they
change signs, divisions, floats, bounds, and what is constant for the gradient.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module.

    Attributes:
        module: path of the file, relative to the tree's root.
        id: of the change within its module: the function, the operator, and a number.
        line: where it begins, from 1.
        last_line: where it ends.
        original: what stands there.
        replacement: what takes its place.
        consequence: lines that only some of the tests execute which execute the change: what follows if the
            changed condition is true.
        is_at_import: whether no function has it, so that it is executed once, when the module is imported.
        source: the whole changed module.
    """

    module: str
    id: str
    line: int
    last_line: int
    original: str
    replacement: str
    consequence: frozenset[int]
    is_at_import: bool
    source: str


@dataclass(frozen=True, slots=True)
class _Change:
    """A replacement of a part of the source.

    Attributes:
        operator: its name.
        start: offset in characters.
        stop: behind the last character.
        text: the replacement.
        consequence: see ``Mutant``; none for that of the condition around it.
    """

    operator: str
    start: int
    stop: int
    text: str
    consequence: frozenset[int] = frozenset()


_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
}
_CALLS: Final = {"min": "max", "max": "min", "all": "any", "any": "all"}
_METHODS: Final = {
    "clamp_min": "clamp_max",
    "clamp_max": "clamp_min",
    "minimum": "maximum",
    "maximum": "minimum",
    "appendleft": "append",
    "popleft": "pop",
}
_ENDS: Final = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_UNTESTED_CALLS: Final = ("_LOG", "log", "warn", "_check_types")
"""First words of calls whose absence changes nothing that a test should see."""


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their lines.

    Args:
        module: its path.
        source: its text.
    """
    return list(_Reader(module, source).mutants())


class _Reader:
    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source
        self._tree = ast.parse(source)
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._lines = lines
        self._others = _other_members(self._tree)

    def mutants(self) -> Iterator[Mutant]:
        counts = Counter[str]()
        for scope, is_at_import, inside, node in _scoped(self._tree):
            for change in self._changes(node):
                original = self._source[change.start : change.stop]
                name = f"{scope}:{change.operator}"
                counts[name] += 1
                changed = self._source[: change.start] + change.text + self._source[change.stop :]
                try:
                    ast.parse(changed)
                except SyntaxError:
                    continue
                yield Mutant(
                    module=self._module,
                    id=f"{name}:{counts[name]}",
                    line=self._source.count("\n", 0, change.start) + 1,
                    last_line=self._source.count("\n", 0, change.stop) + 1,
                    original=original,
                    replacement=change.text,
                    consequence=change.consequence or inside,
                    is_at_import=is_at_import,
                    source=changed,
                )

    def _changes(self, node: ast.AST) -> Iterator[_Change]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                yield from self._between(left, right, _COMPARISONS[type(op)], "comparison")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                yield from self._between(left, right, _ARITHMETIC[type(op)], "arithmetic")
            case ast.BoolOp(op=op, values=values):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for left, right in pairwise(values):
                    yield from self._between(left, right, words, "connective")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replaced("negation", node, self._text(operand))
            case ast.Constant(value=value) if type(value) is int:
                yield self._replaced("constant", node, str(value + 1))
            case ast.Constant(value=value) if type(value) is bool:
                yield self._replaced("constant", node, str(not value))
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
                yield self._replaced("call", node.func, _CALLS[name])
            case ast.comprehension(ifs=[*conditions]):
                for condition in conditions:
                    yield self._replaced("filter", condition, "True")
            case ast.If() | ast.While() | ast.IfExp():
                yield self._replaced("condition", node.test, f"not ({self._text(node.test)})")
            case ast.Attribute(value=ast.Name(id=name), attr=member) if (name, member) in self._others:
                yield self._replaced("member", node, f"{name}.{self._others[name, member]}")
            case ast.withitem(context_expr=context, optional_vars=None):
                yield self._replaced("context", context, '__import__("contextlib").nullcontext()')
            case ast.ExceptHandler(type=ast.expr() as caught):
                start, stop = self._span(caught)
                yield _Change("handler", start, stop, "()", _lines(node.body))
            case ast.Try(finalbody=[first, *_] as block):
                start, stop = self._span(first)[0], self._span(block[-1])[1]
                yield _Change("finally", start, stop, "pass")
        if isinstance(node, ast.Call) and not ast.unparse(node.func).startswith(_UNTESTED_CALLS):
            yield from self._of_arguments(node.args)
        yield from self._of_numerics(node)
        for block in _blocks(node):
            yield from self._of_block(block)

    def _of_numerics(self, node: ast.AST) -> Iterator[_Change]:
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                yield from self._between(left, right, ("/", "*"), "division")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield self._replaced("sign", node, f"({self._text(operand)})")
            case ast.Constant(value=value) if type(value) is float:
                yield self._replaced("number", node, str(2 * value if value else 1.0))
            case ast.Call(func=ast.Attribute(value=owner, attr="detach"), args=[]):
                yield self._replaced("detached", node, self._text(owner))
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _METHODS:
                yield self._replaced("method", node.func, f"{self._text(owner)}.{_METHODS[name]}")

    def _of_block(self, block: list[ast.stmt]) -> Iterator[_Change]:
        for statement in block:
            if _is_guard(statement):
                assert isinstance(statement, ast.If)
                start, stop = self._span(statement.test)
                yield _Change("guard", start, stop, "False", _consequence(statement))
            elif _is_checking_call(statement) and len(block) > 1:
                yield self._replaced("statement", statement, "pass")
            elif _is_of_state(statement):
                yield self._replaced("write", statement, "pass")
        for first, second in pairwise(block):
            if _has_order(first) and _has_order(second):
                yield self._swapped("order", first, second)
            elif (_is_of_state(first) and _has_order(second)) or (_has_order(first) and _is_of_state(second)):
                yield self._swapped("sequence", first, second)

    def _of_arguments(self, arguments: list[ast.expr]) -> Iterator[_Change]:
        for first, second in pairwise(arguments):
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                yield self._swapped("argument", first, second)

    def _swapped(self, operator: str, first: ast.stmt | ast.expr, second: ast.stmt | ast.expr) -> _Change:
        start, stop = self._span(first)[0], self._span(second)[1]
        between = self._source[self._span(first)[1] : self._span(second)[0]]
        text = self._text(second) + between + self._text(first)
        return _Change(operator, start, stop, text, _consequence(first) | _consequence(second))

    def _between(
        self, left: ast.expr, right: ast.expr, words: tuple[str, str], operator: str
    ) -> Iterator[_Change]:
        start, stop = self._span(left)[1], self._span(right)[0]
        gap = self._source[start:stop]
        if gap.count(words[0]) == 1:
            yield _Change(operator, start, stop, gap.replace(*words))

    def _replaced(self, operator: str, node: ast.AST, text: str) -> _Change:
        start, stop = self._span(node)
        return _Change(operator, start, stop, text)

    def _text(self, node: ast.AST) -> str:
        start, stop = self._span(node)
        return self._source[start:stop]

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Return the offset in characters of a column in UTF-8 bytes."""
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)


_Scoped = tuple[str, bool, frozenset[int], ast.AST]
"""Name of the function or class, whether at import, the consequence of the condition around it, the node."""


def _scoped(tree: ast.Module) -> Iterator[_Scoped]:
    """Yield all nodes that are executed."""

    def walk(node: ast.AST, scope: str, is_at_import: bool, inside: frozenset[int]) -> Iterator[_Scoped]:
        yield scope or "module", is_at_import, _consequence(node) or inside, node
        for child in _children(node):
            inner, is_function = scope, isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{scope}.{child.name}".lstrip(".")
            is_condition = isinstance(node, ast.If | ast.While) and child is node.test
            around = (
                _consequence(node) if is_condition else inside if isinstance(child, ast.expr) else frozenset()
            )
            yield from walk(child, inner, is_at_import and not is_function, around)

    yield from walk(tree, "", True, frozenset())


def _consequence(node: ast.AST) -> frozenset[int]:
    """Return the lines that are executed where the condition of an ``if`` or ``while`` is true."""
    if not isinstance(node, ast.If | ast.While):
        return frozenset()
    return _lines(node.body)


def _lines(block: list[ast.stmt]) -> frozenset[int]:
    last = block[-1].end_lineno
    assert last is not None
    return frozenset(range(block[0].lineno, last + 1))


def _children(node: ast.AST) -> Iterable[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "type_comment"):
            continue
        if isinstance(node, ast.arguments) and name not in ("defaults", "kw_defaults"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.If) and _is_for_types(child.test):
                continue
            if isinstance(child, ast.AST) and not isinstance(child, ast.Assert):
                yield child


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block


def _is_guard(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If)
        and not statement.orelse
        and isinstance(statement.body[-1], _ENDS)
        and not _is_for_types(statement.test)
    )


def _is_checking_call(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value.value if isinstance(statement.value, ast.Await) else statement.value
    return isinstance(value, ast.Call) and not ast.unparse(value.func).startswith(_UNTESTED_CALLS)


def _has_order(statement: ast.stmt) -> bool:
    return _is_guard(statement) or _is_checking_call(statement)


def _is_of_state(statement: ast.stmt) -> bool:
    """Return whether a statement changes an object that outlives the call."""
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign | ast.Delete)
        else [statement.target]
        if isinstance(statement, ast.AugAssign)
        else []
    )
    return any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)


def _other_members(tree: ast.Module) -> dict[tuple[str, str], str]:
    """Return for each member of an enumeration the next one that the module names, by class and member."""
    members: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=member) if (
                name[:1].isupper() and member.isupper()
            ):
                found = members.setdefault(name, [])
                if member not in found:
                    found.append(member)
    return {
        (name, member): found[(place + 1) % len(found)]
        for name, found in members.items()
        for place, member in enumerate(found)
        if len(found) > 1
    }
