"""Several measurements of one thing: what is reported is the middle one, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Spread:
    """The least, the middle and the greatest of several measurements."""

    least: float
    median: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        return cls(min(values), median(values), max(values))

    @classmethod
    def of_ratios(cls, above: Sequence[float], below: Sequence[float]) -> Spread:
        """Return the spread of the ratios of measurements that were made side by side."""
        return cls.of([a / b for a, b in zip(above, below, strict=True)])
