"""Hypothesis profiles; ``HYPOTHESIS_PROFILE`` chooses one: ``ci`` (default), ``dev`` or ``nightly``."""

import os

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
