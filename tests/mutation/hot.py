"""Judge mutants of functions in a process that has imported the sources and collected the tests.

Usage: PYTHONPATH=tests python -m mutation.hot --in PATH... --tests PATH... [--only REGEX] [--not REGEX]
           [--sample COUNT] [--seed TEXT] [--report FILE]

Each mutant is judged in a child process whose functions get the code of the mutant, so that it costs neither
imports nor collection. Not judged in this way is what is executed at import, and what tests run in processes
of their own. Reasons of survivors that no test can tell are in ``equivalent.json``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType

import coverage
import pytest
from mutation.__main__ import EQUIVALENT, all_mutants, name_of, ranked
from mutation.bench import ROOT, Reach
from mutation.operators import Mutant

_PATIENCE_SECONDS = 120.0


class Hot:
    """Pytest plugin that runs the collected tests once for each mutant, as far as they execute its lines.

    Args:
        mutants: in the order in which they are judged.
        report: file that gets a row for each one.
    """

    def __init__(self, mutants: Sequence[Mutant], report: Path) -> None:
        self.counts = Counter[str]()
        self._mutants = mutants
        self._report = report
        self._failed: list[str] = []
        self._explained = json.loads(EQUIVALENT.read_text(encoding="utf-8"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test that fails."""
        if report.failed or report.skipped:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure what each test executes, then judge every mutant."""
        items = {item.nodeid: item for item in session.items}
        modules = {mutant.module: _module(mutant.module) for mutant in self._mutants}
        reach = self._measured([*items.values()], [*modules])
        rows = []
        for mutant in self._mutants:
            tests = [items[name] for part in reach.of(mutant) for name in part]
            seconds = sum(reach.seconds[item.nodeid] for item in tests)

            def work(mutant: Mutant = mutant, tests: Sequence[pytest.Item] = tests) -> str:
                transplant(modules[mutant.module], mutant.source)
                return self._first_failure(tests)

            by = _in_child(work, 3 * seconds + _PATIENCE_SECONDS) if tests else ""
            verdict = "unreached" if not tests else "survived" if by == "passed" else "killed"
            if verdict == "survived" and name_of(mutant) in self._explained:
                verdict = "equivalent"
            self.counts[verdict] += 1
            row = {key: getattr(mutant, key) for key in ("module", "line", "original", "replacement")}
            rows.append({"name": name_of(mutant), "verdict": verdict, "by": by, "tests": len(tests), **row})
            self._report.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        return True

    def _first_failure(self, tests: Sequence[pytest.Item]) -> str:
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return self._failed[0]
        return "passed"

    def _measured(self, items: Sequence[pytest.Item], modules: Sequence[str]) -> Reach:
        def work() -> str:
            with TemporaryDirectory() as folder:
                files = [str(ROOT / module) for module in modules]
                measured = coverage.Coverage(str(Path(folder) / "data"), include=files, config_file=False)
                measured.start()
                seconds: dict[str, float] = {}
                for item, following in zip(items, [*items[1:], None], strict=True):
                    measured.switch_context(item.nodeid)
                    started = time.process_time()  # a busy machine prolongs everything else
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    seconds[item.nodeid] = time.process_time() - started
                measured.stop()
                data, tests = measured.get_data(), defaultdict[str, dict[int, list[str]]](dict)
                for module in modules:
                    for line, names in data.contexts_by_lineno(str(ROOT / module)).items():
                        tests[module][line] = sorted(name for name in names if name in seconds)
                passed = {name: spent for name, spent in seconds.items() if name not in self._failed}
                return json.dumps({"tests": tests, "seconds": passed})

        found = json.loads(_in_child(work, 3600.0))
        return Reach(
            {
                module: {int(line): frozenset(names) for line, names in lines.items()}
                for module, lines in found["tests"].items()
            },
            found["seconds"],
        )


def transplant(module: ModuleType, source: str) -> None:
    """Give the functions and methods of a module the code that they have in another source of it."""
    changed = ModuleType(module.__name__)
    changed.__dict__.update({name: value for name, value in vars(module).items() if name.startswith("__")})
    exec(compile(source, str(module.__file__), "exec"), changed.__dict__)
    for old, new in _functions(module, changed, module.__name__):
        if old.__code__.co_freevars == new.__code__.co_freevars:
            old.__code__ = new.__code__
        if new.__defaults__ is not None and all(isinstance(each, int | float) for each in new.__defaults__):
            old.__defaults__ = new.__defaults__


def _functions(old: object, new: object, module: str) -> Iterator[tuple[FunctionType, FunctionType]]:
    """Yield the functions of a module or class, each with that of the other source."""
    for name, value in [*vars(old).items()]:
        other = vars(new).get(name)
        for before, after in zip(_plain(value), _plain(other), strict=False):
            if isinstance(before, FunctionType) and isinstance(after, FunctionType):
                if before.__module__ == module:
                    yield before, after
            elif isinstance(before, type) and isinstance(after, type) and before.__module__ == module:
                yield from _functions(before, after, module)


def _plain(value: object) -> list[object]:
    """Return the functions behind a decorator."""
    match value:
        case property():
            return [value.fget, value.fset]
        case classmethod() | staticmethod():
            return [value.__func__]
        case cached_property():
            return [value.func]
    return [inspect.unwrap(value) if callable(value) else value]


def _module(path: str) -> ModuleType:
    return import_module(".".join(Path(path).with_suffix("").parts[1:]))


def _in_child(work: Callable[[], str], patience: float) -> str:
    """Return what a function returns in a child process without output, or how that ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        with os.fdopen(writing, "w", encoding="utf-8") as pipe:
            pipe.write(work())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = (pipe.read() or "the process died") if select([reading], [], [], patience)[0] else "no end"
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said


def main() -> int:
    """Judge, and print what survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--in", dest="places", nargs="+", required=True, metavar="PATH")
    parser.add_argument("--tests", nargs="+", required=True, metavar="PATH")
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--not", dest="excluded", default="^$", metavar="REGEX")
    parser.add_argument("--sample", type=int, metavar="COUNT")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--report", type=Path, default=Path("mutation-report.json"))
    options = parser.parse_args()
    mutants = [
        mutant
        for mutant in all_mutants(options.places)
        if re.search(options.only, name_of(mutant))
        and not re.search(options.excluded, name_of(mutant))
        and not mutant.is_at_import
    ]
    hot = Hot(ranked(mutants, options.seed)[: options.sample], options.report)
    pytest.main(
        ["-q", "-m", "not long and not e2e", "-p", "no:xdist", "-p", "no:cacheprovider", *options.tests],
        [hot],
    )
    for row in json.loads(options.report.read_text(encoding="utf-8")):
        if row["verdict"] == "survived":
            before, after = (" ".join(row[key].split()) for key in ("original", "replacement"))
            sys.stdout.write(f"survived: {row['name']} (line {row['line']})\n    {before}\n -> {after}\n")
    sys.stdout.write(", ".join(f"{count} {verdict}" for verdict, count in sorted(hot.counts.items())) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
