"""Tests of the learner compute in float32 on every processor, unless their settings name a type."""

import pytest


@pytest.fixture(autouse=True)
def without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit oneDNN to instructions below bfloat16's, in learner processes that a test starts, too."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
