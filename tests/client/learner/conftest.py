"""Tests of the learner compute in float32 on every processor, unless their settings name a type."""

import pytest


@pytest.fixture(autouse=True)
def _in_float32(without_bfloat16: None) -> None:
    """Learner processes that a test starts do so, too."""
