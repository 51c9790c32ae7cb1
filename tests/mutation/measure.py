"""Run tests with coverage and write which execute which lines: measure.py FILE PACKAGE,... PATH..."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import coverage
import pytest
from mutation.bench import ROOT
from mutation.contexts import Contexts


def main() -> None:
    """Measure and write."""
    found, packages, *tests_to_run = sys.argv[1:]
    with TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        measured = coverage.Coverage(
            data_file=str(Path(folder) / "data"),
            source_pkgs=packages.split(","),
            config_file=False,
        )
        measured.start()
        plugins = [Contexts(measured, times)]
        pytest.main(
            ["-q", "-m", "not long and not e2e", "-p", "no:xdist", "-p", "no:cacheprovider", *tests_to_run],
            plugins,
        )
        measured.stop()
        seconds = json.loads(times.read_text(encoding="utf-8"))
        tests: dict[str, dict[int, list[str]]] = defaultdict(dict)
        data = measured.get_data()
        for file in data.measured_files():
            module = str(Path(file).relative_to(ROOT))
            for line, contexts in data.contexts_by_lineno(file).items():
                tests[module][line] = sorted(name for name in contexts if name)
    Path(found).write_text(json.dumps({"tests": tests, "seconds": seconds}), encoding="utf-8")


if __name__ == "__main__":
    main()
