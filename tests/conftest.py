"""Hypothesis profiles, the order of the tests, and the seed of their random choices.

``HYPOTHESIS_PROFILE`` chooses a profile: ``ci`` (default), ``dev`` or ``nightly``.
``SAPO_TEST_SEED`` changes all other random choices, such as trio's order of tasks (``make orders-nightly``).
"""

import gc
import os
import random
import sys
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from trio._core import _run

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

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

SEED = os.environ.get("SAPO_TEST_SEED", "0")

SLOW = ("tests/test_static.py", "tests/simulation/", "tests/verification/", "tests/client/", "tests/docs/")
"""Files and folders with tests of a quarter of a minute or more: one that comes last is waited for."""

STORY = {"test_rounds.py", "test_verify_file.py", "test_live_reports.py", "test_learner_death.py"}
"""Files about one story, which takes a minute to happen (``tests/client/conftest.py``)."""


def pytest_report_header() -> str:
    """Tell the seed, with which a run can be repeated."""
    return f"seed: SAPO_TEST_SEED={SEED} PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the random choices of a test by its name, whichever tests this worker ran before.

    Of the tasks that can run, trio chooses the next one at random; pytest-trio makes that choice repeatable.
    """
    seed = f"{SEED} {item.nodeid}"
    random.seed(seed)
    _run._r.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(zlib.crc32(seed.encode()))


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
    return next((rank for rank, name in enumerate(SLOW, 1) if item.nodeid.startswith(name)), 9)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """A file is one worker's, and so is the story."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "story" if Path(file).name in STORY else file

        def schedule(self) -> None:
            """Give each worker two units of work if there are any, one that replaces another, too.

            xdist 3.8 gives the latter one: a worker waits for a second test before it runs its first, so that
            the run never ended if a single one was left.
            """
            super().schedule()
            for node in self.nodes:
                self._reschedule(node)

        def remove_node(self, node: "WorkerController") -> str | None:
            """Give the tests of a worker that crashed to others, except for the one that it was running.

            xdist 3.8 hands that one out again: it ends each new worker, until xdist starts no more of them
            and leaves out what is left of the file.
            """
            crashed = None
            for tests in self.assigned_work[node].values():
                crashed = next((test for test, completed in tests.items() if not completed), None)
                if crashed is not None:
                    tests[crashed] = True
                    break
            super().remove_node(node)
            return crashed

    return Scheduling(config, log)
