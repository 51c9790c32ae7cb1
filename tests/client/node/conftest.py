"""A node on mock clocks for tests of its health."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.health_trial import Begin, HealthHome, HealthTrial
from trio.testing import MockClock

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.manifest import Manifest


@pytest.fixture
def begin(policy: Path, tmp_path: Path, mock_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> Begin:
    """Return a function that makes a node of a swarm, not running yet."""

    def make(manifest: Manifest, **changes: dict[str, object]) -> HealthTrial:
        home = HealthHome(tmp_path, 1, manifest, policy)
        home.changes = changes
        return HealthTrial(home, MemoryHub(), mock_clock, capsys, wall_base=time.time())

    return make
