"""Figures of a source tree: imports, places where types are built, and numbers of arguments of calls.

All of them are read from the syntax trees, and nothing is imported or run, so that an older version can be
measured in the same way.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = {
    "sapo_protocol": "protocol/sapo_protocol",
    "sapo_verification": "verification/sapo_verification",
    "sapo_client": "client/sapo_client",
    "sapo": "client/sapo",
}


@dataclass(frozen=True)
class Module:
    """A source file of a package.

    Attributes:
        name: dotted, such as ``sapo_protocol.envelope``; a package's is its folder's.
        path: relative to the tree's root.
        tree: its syntax.
    """

    name: str
    path: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """The folder that the file lies in, relative to the tree's root."""
        return self.path.rpartition("/")[0]


@cache
def modules(root: Path = ROOT) -> tuple[Module, ...]:
    """Return every source file of the packages."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            inner = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join((package, *inner)).removesuffix(".__init__")
            found.append(Module(name, path.relative_to(root).as_posix(), parsed(path)))
    return tuple(found)


def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def imports(root: Path = ROOT) -> Mapping[str, frozenset[str]]:
    """Return for each module the modules of the packages that it imports anywhere in its text.

    Imports inside functions and for type checkers count: they are knowledge, too.
    """
    known = {module.name for module in modules(root)}
    return {module.name: frozenset(_imported(module, known)) for module in modules(root)}


def _imported(module: Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module


def circles(root: Path = ROOT) -> list[list[str]]:
    """Return every set of modules that import each other, directly or by way of others."""
    graph = imports(root)
    reach = {name: _reachable(name, graph) for name in graph}
    found = {
        tuple(sorted({name, *(other for other in reach[name] if name in reach[other])}))
        for name in graph
        if name in reach[name]
    }
    return sorted(map(list, found))


def _reachable(start: str, graph: Mapping[str, frozenset[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def calls_by_position(root: Path = ROOT) -> list[tuple[int, str]]:
    """Return each call's number of positional arguments with its place, the widest first.

    Calls with ``*args`` do not count.
    """
    found = [
        (len(node.args), f"{module.path}:{node.lineno}")
        for module in modules(root)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and not any(isinstance(each, ast.Starred) for each in node.args)
    ]
    return sorted(found, reverse=True)


def modules_by_folder(root: Path = ROOT) -> list[tuple[int, str]]:
    """Return how many modules each folder holds beside its ``__init__``, the fullest first."""
    counts = Counter(module.folder for module in modules(root) if not module.path.endswith("__init__.py"))
    return sorted(((count, folder) for folder, count in counts.items()), reverse=True)


def names_used_twice(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the public class names that more than one class has, with the files."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules(root):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.path)
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def composition_imports(root: Path = ROOT) -> frozenset[str]:
    """Return the modules of the three packages that the node's composition root imports."""
    return imports(root)["sapo_client.node.app"]


TRUST: Final = 5
"""So many different stateful classes of verification built in one file are a graph, not a part or two."""


def wirings(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the files, tests included, that build the graph of trusted state, each with the classes.

    Counted are the classes of ``sapo_verification`` with a constructor of their own: they hold state, or
    others that do. Dataclasses are values, and whoever needs one makes it.
    """
    stateful = {
        node.name
        for module in modules(root)
        if module.name.startswith("sapo_verification")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _has_constructor(node)
    }
    built = {}
    for path in sorted(
        [
            *(root / "tests").rglob("*.py"),
            *(root / "client").rglob("*.py"),
            *(root / "verification").rglob("*.py"),
        ]
    ):
        names = sorted(
            {called(node) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)} & stateful
        )
        if len(names) >= TRUST:
            built[path.relative_to(root).as_posix()] = names
    return built


def _has_constructor(node: ast.ClassDef) -> bool:
    bases = {last_name(base) for base in node.bases}
    names = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return "__init__" in names and not any(base.endswith(("Error", "Exception")) for base in bases)


def called(call: ast.Call) -> str:
    """Return the last name of what a call calls."""
    return last_name(call.func)


def last_name(node: ast.expr) -> str:
    """Return the last name of an expression such as ``types.SampledBatch``."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
