"""Pytest plugin that records which test executes which line, and how long each takes."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest


class Contexts:
    """Switch coverage's context to each test's id; keep the seconds of each.

    Args:
        measured: the running measurement.
        times: file that gets the seconds of every test that passed, as JSON.
    """

    def __init__(self, measured: coverage.Coverage, times: Path) -> None:
        self._measured = measured
        self._times = times
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        """Attribute the lines of a test, its fixtures included, to it."""
        self._measured.switch_context(item.nodeid)
        started = time.perf_counter()
        yield
        self._seconds[item.nodeid] = time.perf_counter() - started
        self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record tests that fail on the unchanged source: they are not used."""
        if report.outcome != "passed":
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the seconds of the tests that passed."""
        passed = {name: spent for name, spent in self._seconds.items() if name not in self._failed}
        self._times.write_text(json.dumps(passed), encoding="utf-8")
