"""Bounded memory of message ids. Pure; the clock is passed in."""

from __future__ import annotations

from collections import OrderedDict


class SeenIds:
    """Ids stored for a limited time; when full, the oldest is dropped first."""

    def __init__(self, *, max_ids: int, lifetime_seconds: float) -> None:
        self._max_ids = max_ids
        self._lifetime_seconds = lifetime_seconds
        self._added_seconds: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._added_seconds)

    def add(self, message_id: bytes, now_seconds: float) -> None:
        """Store an id; the lifetime of a known id is not renewed."""
        if self.has(message_id, now_seconds):
            return
        self._added_seconds[message_id] = now_seconds
        self._forget(now_seconds)

    def has(self, message_id: bytes, now_seconds: float) -> bool:
        """Whether the id is stored and not expired."""
        added_seconds = self._added_seconds.get(message_id)
        if added_seconds is None:
            return False
        if now_seconds - added_seconds < self._lifetime_seconds:
            return True
        del self._added_seconds[message_id]
        return False

    def _forget(self, now_seconds: float) -> None:
        while self._added_seconds:
            oldest, added_seconds = next(iter(self._added_seconds.items()))
            full = len(self._added_seconds) > self._max_ids
            if not full and now_seconds - added_seconds < self._lifetime_seconds:
                return
            del self._added_seconds[oldest]
