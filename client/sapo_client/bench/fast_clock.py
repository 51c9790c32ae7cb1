"""`python -m sapo_client.bench.fast_clock ORIGIN SPEED ...`: `sapo ...` with a wall clock that runs faster.

What a node does by the time of day, epochs, pruning and history, happens as often as the clock says. What it
measures, deadlines and pauses, has the monotonic clock and is as long as ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points


def fast_clock(origin: float, speed: float, real: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return a clock that shows ``origin`` at that moment and from then on runs ``speed`` times as fast.

    Args:
        origin: Unix seconds.
        speed: seconds it shows in a second.
        real: the clock that it follows.
    """
    return lambda: origin + (real() - origin) * speed


def main() -> None:
    """Run the command line behind the two numbers with that clock."""
    origin, speed, *arguments = sys.argv[1:]
    time.time = fast_clock(float(origin), float(speed))
    [command] = entry_points(group="console_scripts", name="sapo")
    sys.argv = ["sapo", *arguments]
    command.load()()  # after the clock: modules keep `time.time` as they find it


if __name__ == "__main__":
    main()
