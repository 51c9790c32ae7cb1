"""A bounded cache of results."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """Results by key; all are dropped before one more than ``max_entries`` is added.

    This needs no order of use, and costs little where results are computed again in a moment. Only assignment
    by key is bounded.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._max_entries and key not in self:
            self.clear()
        super().__setitem__(key, value)
