"""Age of other accounts' rollouts in steps of this node: how long they waited in the pool."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from statistics import fmean

from sapo_protocol.identifiers import ContentId


class PoolAges:
    """The step at which each waiting rollout was first seen."""

    def __init__(self) -> None:
        self._seen: dict[ContentId, int] = {}

    def look(self, waiting: Iterable[ContentId], step: int) -> None:
        """Record the waiting rollouts before a round, and forget those that do not wait any more."""
        self._seen = {each: self._seen.get(each, step) for each in waiting}

    def mean(self, rollouts: Collection[ContentId], step: int) -> float:
        """Return the mean number of steps since rollouts were first seen; 0 if there are none."""
        return fmean(step - self._seen.get(each, step) for each in rollouts) if rollouts else 0.0
