"""What the canary remembers from check to check and from start to start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

MANY = 2**31


@dataclass(frozen=True, slots=True)
class Watch:
    """The state of the watch.

    Attributes:
        control: the reward that falls are measured from.
        falls: checks in a row below it.
        most_external: J as it is now.
    """

    control: float
    falls: int = 0
    most_external: int = MANY

    def after(self, reward: float, lowest: float) -> Watch:
        """The watch after a check. The control goes half of the way up to a better reward and never down,
        or a patient attacker could lower it step by step."""
        if reward < lowest:
            return Watch(self.control, self.falls + 1, self.most_external)
        return Watch(max(self.control, (self.control + reward) / 2), 0, self.most_external)


class CanaryFile:
    """The watch on disk, beside the checkpoints that it belongs to.

    Args:
        fresh: the policy starts anew, so what was written says nothing.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._fresh = fresh

    def read(self, items: int) -> Watch | None:
        """The watch over so many items; none if there is none, it is of other items, or torn."""
        if self._fresh:
            return None
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            return Watch(**plain["watch"]) if plain["items"] == items else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, watch: Watch, items: int) -> None:
        """Replaces what was written, whole or not at all."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        writing = self._path.with_suffix(".writing")
        writing.write_text(json.dumps({"items": items, "watch": asdict(watch)}) + "\n", encoding="utf-8")
        writing.replace(self._path)
        self._fresh = False
