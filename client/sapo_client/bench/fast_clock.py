"""`python -m sapo_client.bench.fast_clock ORIGIN SPEED ...`: `sapo ...` with an accelerated wall clock.

Everything that follows the time of day (epochs, pruning, history) happens as often as this clock says.
Deadlines and pauses use the monotonic clock, and keep their real length.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points


def fast_clock(origin: float, speed: float, real: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return a clock that is equal to the real one at ``origin`` and runs ``speed`` times as fast.

    Args:
        origin: Unix seconds.
        speed: seconds of this clock per real second.
        real: the real clock.
    """
    return lambda: origin + (real() - origin) * speed


def main() -> None:
    """Run the command line that follows the two numbers with that clock."""
    origin, speed, *arguments = sys.argv[1:]
    time.time = fast_clock(float(origin), float(speed))
    [command] = entry_points(group="console_scripts", name="sapo")
    sys.argv = ["sapo", *arguments]
    command.load()()  # only now: modules may store `time.time` when they are imported


if __name__ == "__main__":
    main()
