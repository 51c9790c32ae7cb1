"""Runs the tests that execute a mutant's lines, in a copy of the tree, until one fails."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from select import select
from typing import Final, Literal

from mutation.operators import Mutant

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("protocol", "verification", "client", "tests", "contracts", "docs", "pyproject.toml")
ROOTS: Final = ("protocol", "verification", "client", "tests")
"""From which packages and the tests' own modules are imported: this tree's, whichever one is installed."""

_TESTS: Final = 30
"""Tests that a mutant is shown first."""

_SECONDS: Final = 15.0
"""Of tests that a mutant is shown first, as long as they take without it."""

_MORE_SECONDS: Final = 120.0
"""Of all tests that a mutant is shown."""

_PATIENCE_SECONDS: Final = 120.0
"""What a mutant may take longer than that; one that takes more is noticed."""

_MEMORY_BYTES: Final = 6 * 2**30

Verdict = Literal["killed", "survived", "unreached"]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tests execute which lines.

    Attributes:
        tests: ids by module and line.
        seconds: of each test.
    """

    tests: Mapping[str, Mapping[int, frozenset[str]]]
    seconds: Mapping[str, float]

    def of(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests to show a mutant, in two parts: the second is for one that survives the first.

        Those of its consequence come first, then its module's own, then one of each file after the other.
        """
        by_line = self.tests.get(mutant.module, {})
        lines = range(mutant.line, mutant.last_line + 1)
        found = {name for line in lines for name in by_line.get(line, ())}
        if not found and mutant.is_at_import:
            found = {name for names in by_line.values() for name in names}
        see = {name for line in mutant.consequence for name in by_line.get(line, ())}
        own = f"/test_{Path(mutant.module).stem}.py"
        shortest = sorted(found & self.seconds.keys(), key=lambda name: (self.seconds[name], name))
        turns = Counter[str]()
        ranks = dict[str, tuple[bool, bool, int]]()
        for name in shortest:
            file = name.partition("::")[0]
            ranks[name] = (name not in see, not file.endswith(own), turns[file])
            turns[file] += 1
        ranked = sorted(shortest, key=ranks.__getitem__)
        spent = list(accumulate(self.seconds[name] for name in ranked))
        first = max(1, min(_TESTS, bisect(spent, _SECONDS)))
        return [part for part in (ranked[:first], ranked[first : bisect(spent, _MORE_SECONDS)]) if part]


def measure(places: Sequence[str], tests: Sequence[str], found: Path) -> Reach:
    """Run tests once with coverage, and return which of them execute which lines.

    Args:
        places: folders or files whose packages' lines are of interest.
        tests: files or folders.
        found: file that keeps the result; it is read if it exists.
    """
    if not found.exists():
        names = ",".join(sorted({Path(place).parts[1] for place in places}))
        command = [sys.executable, "-m", "mutation.measure", str(found), names, *tests]
        roots = os.pathsep.join(str(ROOT / name) for name in ROOTS)
        environment = {**os.environ, "PYTHONPATH": roots, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
    document = json.loads(found.read_text(encoding="utf-8"))
    return Reach(
        {
            module: {int(line): frozenset(tests) for line, tests in lines.items()}
            for module, lines in document["tests"].items()
        },
        document["seconds"],
    )


class Bench:
    """Copy of the tree in which one module after the other is broken.

    Args:
        folder: gets the copy.
        reach: which tests to run.
    """

    def __init__(self, folder: Path, reach: Reach) -> None:
        self._folder = folder
        self._reach = reach
        for name in SOURCES:
            _copy(ROOT / name, folder / name)
        tests = sorted({name.partition("::")[0] for name in reach.seconds})
        for name in _in_child(lambda: _modules_of_others(folder, tests)).split():
            with suppress(ImportError):  # a part of a package that is not imported by itself
                import_module(name)

    def judge(self, mutant: Mutant) -> tuple[Verdict, str]:
        """Return whether a test detects a mutant, and which."""
        parts = self._reach.of(mutant)
        if not parts:
            return "unreached", ""
        path = self._folder / mutant.module
        genuine = path.read_text(encoding="utf-8")
        path.write_text(mutant.source, encoding="utf-8")
        try:
            for tests in parts:
                expected = sum(self._reach.seconds[name] for name in tests)
                if (said := self._shown(tests, expected + _PATIENCE_SECONDS)) != "passed":
                    return "killed", said
            return "survived", ""
        finally:
            path.write_text(genuine, encoding="utf-8")

    def _shown(self, tests: Sequence[str], patience: float) -> str:
        try:
            return _in_child(lambda: _first_failure(self._folder, tests), patience) or "the process died"
        except TimeoutError:
            return "no end"


def _in_child(work: Callable[[], str], patience: float = 600.0) -> str:
    """Return what a function returns in a child process; nothing if the process dies.

    Raises:
        TimeoutError: it took longer than ``patience`` seconds.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(work())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read() if select([reading], [], [], patience)[0] else None
    os.killpg(child, signal.SIGKILL)  # with what the tests left behind
    os.waitpid(child, 0)
    if said is None:
        raise TimeoutError
    return said


class _FirstFailure:
    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: object) -> None:
        if getattr(report, "failed", False) and not self.name:
            self.name = str(getattr(report, "nodeid", ""))


def _modules_of_others(folder: Path, tests: Sequence[str]) -> str:
    """Return the installed modules that test files import: most of a test's time goes to importing them."""
    _pytest(folder, ["--collect-only", *tests])
    names = [name for name, module in [*sys.modules.items()] if "site-packages" in _file(module)]
    return " ".join(names)


def _file(module: object) -> str:
    return str(getattr(module, "__file__", None))


def _first_failure(folder: Path, tests: Sequence[str]) -> str:
    """Run tests until one fails; return its name, or ``passed``."""
    first = _FirstFailure()
    code = _pytest(folder, ["-x", *tests], first)
    return "passed" if code == 0 else first.name or f"pytest ended with {code}"


def _pytest(folder: Path, arguments: Sequence[str], *plugins: object) -> int:
    """Run pytest in a copy of the tree, in this process, which is of no use afterwards."""
    import pytest

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    os.chdir(folder)
    roots = [str(folder / name) for name in ROOTS]
    sys.path[:0] = roots
    sys.dont_write_bytecode = True
    path = os.pathsep.join(roots)
    os.environ.update(PYTHONPATH=path, HYPOTHESIS_PROFILE="dev", PYTHONDONTWRITEBYTECODE="1")
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mutation"]:
        del sys.modules[name]
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], [*plugins]))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("node_modules", "__pycache__", "cache", "out")
        )
        for modules in source.rglob("node_modules"):
            if modules.parent.name != "node_modules" and not any(
                part == "node_modules" for part in modules.relative_to(source).parts[:-1]
            ):
                (target / modules.relative_to(source)).symlink_to(modules)
    else:
        shutil.copy(source, target)
