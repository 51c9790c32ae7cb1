"""Hypothesis profiles, and the order of the tests.

``HYPOTHESIS_PROFILE`` chooses a profile: ``ci`` (default), ``dev`` or ``nightly``.
"""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# No deadline in any of them: a test that asserts a wall-clock figure fails on a busy machine.
# `ci` and `dev` draw the same examples every time, so that a red run speaks of the change under test;
# `nightly` draws new ones, and what it finds becomes a test of its own.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=60,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", settings.get_profile("ci"), max_examples=15)
settings.register_profile("nightly", settings.get_profile("ci"), derandomize=False, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

SLOW_FOLDERS = ("tests/verification/", "tests/client/")
STORY = {"test_rounds.py", "test_verify_file.py", "test_live_reports.py", "test_learner_death.py"}
"""Files about one story, which takes a minute to happen (``tests/client/conftest.py``)."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests, a million objects that last, out of every later search for garbage.

    Each worker would search them again and again: a fifth of its collection, and some of most tests' time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole swarms first and small files last, so that workers, each with a file at a time, end together."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if "e2e" in item.keywords:
        return 0
    return next((rank for rank, name in enumerate(SLOW_FOLDERS, 1) if item.nodeid.startswith(name)), 9)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """A file is one worker's, and so is the story."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "story" if Path(file).name in STORY else file

    return Scheduling(config, log)
