"""Held-out items from larger ranges than those of the level ``worked``, only for evaluation in experiments.

A policy that has memorised answers fails on them; one that has learnt the steps may solve them. No swarm's
suite contains them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sapo_protocol.suite import Family
from sapo_verification.suites.catalogue import canonical

Entry = Mapping[str, Any]

LEVEL: Final = "wide"


@dataclass(frozen=True, slots=True)
class WideRange:
    """A larger range of one family.

    Attributes:
        config: settings of the generator that differ from the level's.
        is_outside: whether an item is outside the level's range; the generator may also return items inside.
    """

    config: Mapping[str, Any]
    is_outside: Callable[[Entry], bool]


def _has_four_digits(entry: Entry) -> bool:
    return all(int(number) > 1000 for number in re.findall(r"\d+", entry["metadata"]["expression"]))


def _is_far(entry: Entry) -> bool:
    """Whether a cell is four steps or more from the nearest zero, as in one of six items of the range."""
    return max(map(int, re.findall(r"\d", entry["answer"]))) > 3


WIDE: Final[Mapping[str, WideRange]] = {
    "basic_arithmetic": WideRange({"min_digits": 4, "max_digits": 4}, _has_four_digits),
    "fraction_simplification": WideRange(
        {"max_value": 11, "min_factor": 18, "max_factor": 28},
        lambda entry: bool(entry["metadata"]["factor"] > 16),
    ),
    "calendar_arithmetic": WideRange(
        {"offset_upper_bound": 999}, lambda entry: abs(entry["metadata"]["offset_days"]) > 499
    ),
    "propositional_logic": WideRange(
        {"min_statements": 3, "max_statements": 3, "min_complexity": 2, "max_complexity": 2},
        lambda entry: len(entry["metadata"]["premises"]) > 2,
    ),
    "binary_matrix": WideRange({"p_zero": 0.05}, _is_far),
}
"""Larger ranges by family; ``bf`` has none, because its programs have only one size."""


def wide(family: Family) -> Family:
    """Return a family of the level ``worked`` with its larger range.

    Raises:
        KeyError: it has no larger range.
    """
    config = {**json.loads(family.config), **WIDE[family.name].config}
    return replace(family, level=LEVEL, config=canonical(config))
