"""Hypothesis profiles, and the order of the tests.

``HYPOTHESIS_PROFILE`` chooses a profile: ``ci`` (default), ``dev`` or ``nightly``.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole swarms first and small files last, so that workers, each with a file at a time, end together.

    All tests about one story are one worker's, for it takes a minute to happen.
    """
    items.sort(key=_rank)
    for item in items:
        group = "story" if "story" in getattr(item, "fixturenames", ()) else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))


def _rank(item: pytest.Item) -> int:
    if "e2e" in item.keywords:
        return 0
    return next((rank for rank, name in enumerate(SLOW_FOLDERS, 1) if item.nodeid.startswith(name)), 9)
