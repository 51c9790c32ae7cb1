"""How many neighbours a node forwards to, by what it sends. Pure.

Nodes to which others can connect carry the meshes of those to which nobody can, and a node that moves hears
four islands for a while. Both would send twice and three times as much as the others. So a node that sends
more than its budget has fewer neighbours in each mesh, and those that it leaves find others.
"""

from __future__ import annotations

from typing import Final

UPLOAD_BITS_PER_SECOND: Final = 3e6
"""What a home connection can spare: a tenth to a third of its uplink."""

FEWEST_NEIGHBOURS: Final = 2
"""In each mesh of a node that sends too much: it keeps those that bring most. With one, what that one lacks
would come by announcement alone."""

_FULL_SHARE: Final = 5 / 6
"""Of the budget, above which neighbours are left: answers to requests and own messages come on top."""

_FREE_SHARE: Final = 2 / 3
"""Of the budget, below which there is room for one neighbour more in each mesh."""

_WEIGHT: Final = 0.25
"""Of the last heartbeat in the mean: it follows within some seconds."""

_PAUSE_HEARTBEATS: Final = 4
"""Between two changes, until the mean shows what the first one did."""


class UploadBudget:
    """The most neighbours in each mesh, by what was sent in the last heartbeats.

    Args:
        fewest, most: bounds of the number of neighbours.
        heartbeat_seconds: time between two calls of ``beat``.
    """

    def __init__(
        self,
        fewest: int,
        most: int,
        heartbeat_seconds: float,
        bits_per_second: float = UPLOAD_BITS_PER_SECOND,
    ) -> None:
        self._fewest, self._bound, self.most = fewest, most, most
        self._heartbeat_seconds = heartbeat_seconds
        self._bits_per_second = bits_per_second
        self._sent_bytes = 0
        self._mean = 0.0
        self._pause = 0

    @property
    def is_overdrawn(self) -> bool:
        """Whether it is exceeded with as few neighbours as a mesh may have."""
        return self.most == self._fewest and self._mean > _FULL_SHARE * self._bits_per_second

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
        elif self._mean > _FULL_SHARE * self._bits_per_second and self.most > self._fewest:
            fitting = int(self.most * _FULL_SHARE * self._bits_per_second / self._mean)
            self._change(max(self._fewest, min(self.most - 1, fitting)))
        elif self._mean < _FREE_SHARE * self._bits_per_second and self.most < self._bound:
            self._change(self.most + 1)
        return self.most

    def _change(self, most: int) -> None:
        self.most = most
        self._pause = _PAUSE_HEARTBEATS
