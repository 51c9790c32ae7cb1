"""Weighted medians."""

from collections.abc import Sequence
from typing import Final

ROUNDING: Final = 1e-9
"""Relative tolerance for rounding errors in a sum of weights."""


def weighted_median(values: Sequence[tuple[float, float]]) -> float:
    """Return the first value at which the cumulative weight reaches half of the total.

    Args:
        values: each with its weight, sorted, at least one: ascending for the lower median, descending for the
            upper one.
    """
    half = sum(weight for _, weight in values) / 2
    reached = 0.0
    for value, weight in values:
        reached += weight
        if reached >= half * (1 - ROUNDING):
            return value
    return values[-1][0]
