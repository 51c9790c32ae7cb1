"""The only place where a node reads the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Unix seconds; tests pass their own."""

wall_clock: Clock = time.time
