"""State of the canary, kept between checks and across restarts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

MANY: Final = 2**31

DEVIATIONS: Final = 3.0
"""Standard deviations of the mean reward beyond which a fall is not chance."""

QUICK: Final = 0.25
SLOW: Final = 0.05
"""Step sizes of the two running means, for each reward that is no fall."""


@dataclass(frozen=True, slots=True)
class CanaryState:
    """State of the canary.

    The control is the higher of two running means. The quick one follows a policy that learns; the slow one
    keeps the level from which a patient attacker lowers it, each time by less than chance. A control that
    never falls would be simpler, but it rises to the best of many checks, and then every average check
    looks like a fall.

    Attributes:
        quick: mean of the last few rewards that were no falls.
        slow: mean of the last twenty or so.
        falls: checks in a row below the control.
        most_external: J as it is now.
    """

    quick: float
    slow: float
    falls: int = 0
    most_external: int = MANY

    @classmethod
    def begin(cls, reward: float, most_external: int = MANY) -> CanaryState:
        """Return the state after a first reward."""
        return cls(reward, reward, 0, most_external)

    @property
    def control(self) -> float:
        """The reward that falls are measured from."""
        return max(self.quick, self.slow)

    def lowest(self, items: int, tolerance: float) -> float:
        """Return the least reward over so many items that is no fall, by tolerance and by chance."""
        variance = max(self.control * (1.0 - self.control), 1.0 / items)
        return self.control - max(tolerance * self.control, DEVIATIONS * math.sqrt(variance / items))

    def after(self, reward: float, lowest: float) -> CanaryState:
        """Return the state after a check."""
        if reward < lowest:
            return replace(self, falls=self.falls + 1)
        quick = self.quick + QUICK * (reward - self.quick)
        slow = self.slow + SLOW * (reward - self.slow)
        return CanaryState(quick, slow, 0, self.most_external)


class CanaryFile:
    """File of the state, beside the checkpoints that it belongs to.

    Args:
        fresh: the policy starts anew, so a stored state is ignored.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._fresh = fresh

    def read(self, items: int) -> CanaryState | None:
        """Return the stored state; None if there is none, or it is damaged or of another number of items."""
        if self._fresh:
            return None
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            return CanaryState(**plain["watch"]) if plain["items"] == items else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, watch: CanaryState, items: int) -> None:
        """Replace the stored state atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        writing = self._path.with_suffix(".writing")
        writing.write_text(json.dumps({"items": items, "watch": asdict(watch)}) + "\n", encoding="utf-8")
        writing.replace(self._path)
        self._fresh = False
