"""Adaptation of the number of mesh neighbours to the upload. No I/O.

Reachable nodes carry the meshes of unreachable ones, and a node that changes islands carries four of them for
a while. Both would send two to three times as much as other nodes. So a node that sends more than its budget
has fewer neighbours in each mesh, and the removed ones find others.
"""

from __future__ import annotations

from typing import Final

UPLOAD_BITS_PER_SECOND: Final = 3e6
"""Upload budget: a tenth to a third of the uplink of a home connection."""

MIN_NEIGHBOURS: Final = 2
"""Least number of neighbours in a mesh of a node that sends too much. With a single one, the messages that it
lacks would arrive only by IHAVE."""

_FULL_SHARE: Final = 5 / 6
"""Part of the budget above which neighbours are removed; answers to requests and own messages are extra."""

_FREE_SHARE: Final = 2 / 3
"""Part of the budget below which one neighbour more is allowed in each mesh."""

_WEIGHT: Final = 0.25
"""Weight of the last heartbeat in the moving average, which follows within some seconds."""

_PAUSE_HEARTBEATS: Final = 4
"""Heartbeats between two changes, until the average shows the effect of the first one."""


class UploadBudget:
    """The most neighbours in each mesh, by what was sent in the last heartbeats.

    Args:
        minimum, maximum: bounds of the number of neighbours.
        heartbeat_seconds: time between two calls of ``beat``.
    """

    def __init__(
        self,
        minimum: int,
        maximum: int,
        heartbeat_seconds: float,
        bits_per_second: float = UPLOAD_BITS_PER_SECOND,
    ) -> None:
        self._minimum, self._maximum, self.limit = minimum, maximum, maximum
        self._heartbeat_seconds = heartbeat_seconds
        self._bits_per_second = bits_per_second
        self._sent_bytes = 0
        self._mean = 0.0
        self._pause = 0

    @property
    def is_overdrawn(self) -> bool:
        """Whether it is exceeded with as few neighbours as a mesh may have."""
        return self.limit == self._minimum and self._mean > _FULL_SHARE * self._bits_per_second

    def sent(self, size_bytes: int) -> None:
        """Count bytes that were sent."""
        self._sent_bytes += size_bytes

    def beat(self) -> int:
        """Return the most neighbours from now on; to be called at each heartbeat."""
        now = 8 * self._sent_bytes / self._heartbeat_seconds
        self._sent_bytes = 0
        self._mean += _WEIGHT * (now - self._mean)
        if self._pause:
            self._pause -= 1
        elif self._mean > _FULL_SHARE * self._bits_per_second and self.limit > self._minimum:
            fitting = int(self.limit * _FULL_SHARE * self._bits_per_second / self._mean)
            self._change(max(self._minimum, min(self.limit - 1, fitting)))
        elif self._mean < _FREE_SHARE * self._bits_per_second and self.limit < self._maximum:
            self._change(self.limit + 1)
        return self.limit

    def _change(self, limit: int) -> None:
        self.limit = limit
        self._pause = _PAUSE_HEARTBEATS
