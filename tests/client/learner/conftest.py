"""Tests of the learner compute in float32 on every processor, unless their settings name a type.

They start its process as a node does: by ``python -m``.
"""

import pytest

from sapo_client.learner import process
from sapo_client.learner.process import start_child  # as it is before a session replaces it


@pytest.fixture(autouse=True)
def _in_float32(without_bfloat16: None) -> None:
    """Learner processes that a test starts do so, too."""


@pytest.fixture(autouse=True)
def _started_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "start_child", start_child)
