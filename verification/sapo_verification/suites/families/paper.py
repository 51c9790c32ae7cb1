"""The families of the SAPO paper's controlled experiments (arXiv 2509.08721, section 4).

``full``: the parameters that rl-swarm published, an instruction before the question, the answer in tags.
The paper names no parameters; which four calendar tasks it used is not published, so we chose four.
* ``nano``: the same generators with small numbers and terse prompts, for policies of one or two million
  parameters. A renderer (``tasks/compact.py``) keeps the data of a question and drops its prose.
* ``nano-2`` and ``nano-3``: the same with larger numbers, for a policy that has learned ``nano``.
* ``worked``: terse prompts as well, but sizes at which such a policy needs written steps, and the answer in
  tags behind them. Only families whose steps are short (docs/results.md says where they pay).
"""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import Config

PAPER_FULL: Final[Mapping[str, tuple[str, Config]]] = {
    "base_conversion": ("exact/1", {"min_base": 2, "max_base": 16, "min_value": 0, "max_value": 1000}),
    "basic_arithmetic": (
        "exact/1",
        {
            "min_terms": 2,
            "max_terms": 6,
            "min_digits": 1,
            "max_digits": 4,
            "operators": ["+", "-", "*", "/"],
            "allow_parentheses": True,
            "allow_negation": True,
        },
    ),
    "arc_1d": ("exact/1", {"min_size": 10, "max_size": 30, "num_train": 3}),
    "bf": ("exact/1", {"difficulty": 1}),
    "propositional_logic": (
        "logic/1",
        {
            "min_vars": 2,
            "max_vars": 4,
            "min_statements": 2,
            "max_statements": 4,
            "min_complexity": 1,
            "max_complexity": 3,
        },
    ),
    "fraction_simplification": (
        "fraction/1",
        {
            "min_value": 1,
            "max_value": 100,
            "min_factor": 2,
            "max_factor": 100,
            "styles": ["plain", "latex_inline", "latex_frac"],
        },
    ),
    "decimal_arithmetic": (
        "decimal/1",
        {
            "min_num_decimal_places": 1,
            "max_num_decimal_places": 3,
            "min_terms": 2,
            "max_terms": 6,
            "precision": 5,
        },
    ),
    "calendar_arithmetic": (
        "calendar/1",
        {
            "year": 2023,
            "offset_upper_bound": 100,
            "tasks": ["weekday_offset", "weekday_of_date", "count_days", "count_business_days"],
        },
    ),
    "binary_matrix": ("rows/1", {"min_n": 3, "max_n": 10, "p_zero": 0.25}),
}

# generator's configuration, scorer, cap of a completion in bytes (twice the longest honest answer or more)
PAPER_NANO: Final[Mapping[str, tuple[str, Config, int]]] = {
    "base_conversion": ("exact/1", {"min_base": 2, "max_base": 10, "min_value": 1, "max_value": 31}, 24),
    "basic_arithmetic": (
        "exact/1",
        {
            "min_terms": 2,
            "max_terms": 2,
            "min_digits": 1,
            "max_digits": 1,
            # without "/": the generator's flat form prints another divisor than the one it divides by
            "operators": ["+", "-"],
            "allow_parentheses": False,
        },
        24,
    ),
    "arc_1d": ("cells/1", {"min_size": 8, "max_size": 8, "num_train": 2}, 32),
    "bf": ("exact/1", {"difficulty": 1}, 24),
    "propositional_logic": (
        "logic/1",
        {
            "min_vars": 2,
            "max_vars": 2,
            "min_statements": 2,
            "max_statements": 2,
            "min_complexity": 2,
            "max_complexity": 2,
        },
        32,
    ),
    "fraction_simplification": (
        "fraction/1",
        {"min_value": 1, "max_value": 9, "min_factor": 2, "max_factor": 5, "styles": ["plain"]},
        24,
    ),
    "decimal_arithmetic": (
        "decimal/1",
        {
            "min_num_decimal_places": 1,
            "max_num_decimal_places": 1,
            "min_terms": 2,
            "max_terms": 2,
            "precision": 5,
        },
        24,
    ),
    "calendar_arithmetic": (
        "calendar/1",
        {"year": 2023, "offset_upper_bound": 7, "tasks": ["weekday_offset"]},
        24,
    ),
    "binary_matrix": ("rows/1", {"min_n": 3, "max_n": 3, "p_zero": 0.25}, 32),
}

# by level above ``nano``: what differs from its configuration, and the cap of a completion in bytes
PAPER_STEPS: Final[Mapping[str, Mapping[str, tuple[Config, int]]]] = {
    "base_conversion": {
        "nano-2": ({"max_value": 127}, 24),
        "nano-3": ({"max_base": 16, "max_value": 1000}, 32),
    },
    "basic_arithmetic": {
        "nano-2": ({"max_digits": 2}, 24),
        "nano-3": ({"max_terms": 3, "max_digits": 2}, 24),
    },
    "propositional_logic": {
        "nano-2": ({"max_complexity": 3}, 48),
        "nano-3": ({"max_vars": 3, "max_statements": 3, "max_complexity": 3}, 64),
    },
    "fraction_simplification": {
        "nano-2": ({"max_value": 20, "max_factor": 9}, 24),
        "nano-3": ({"max_value": 50, "max_factor": 20}, 24),
    },
    "decimal_arithmetic": {
        "nano-2": ({"max_num_decimal_places": 2}, 24),
        "nano-3": ({"max_num_decimal_places": 2, "max_terms": 3}, 32),
    },
    "calendar_arithmetic": {
        "nano-2": ({"offset_upper_bound": 49}, 24),
        "nano-3": ({"offset_upper_bound": 365}, 24),
    },
    "binary_matrix": {"nano-2": ({"max_n": 4}, 48), "nano-3": ({"min_n": 4, "max_n": 5}, 64)},
}

# generator's configuration, scorer, cap of a completion in bytes (twice the longest worked solution or more)
PAPER_WORKED: Final[Mapping[str, tuple[str, Config, int]]] = {
    "basic_arithmetic": (
        "exact/1",
        {
            "min_terms": 2,
            "max_terms": 2,
            "min_digits": 2,
            "max_digits": 3,
            "operators": ["+"],
            "allow_parentheses": False,
        },
        128,
    ),
    "bf": ("exact/1", {"difficulty": 1}, 128),
    "propositional_logic": (
        "logic/1",
        {
            "min_vars": 2,
            "max_vars": 2,
            "min_statements": 2,
            "max_statements": 2,
            "min_complexity": 2,
            "max_complexity": 3,
        },
        256,
    ),
    "fraction_simplification": (
        "fraction/1",
        {"min_value": 1, "max_value": 20, "min_factor": 2, "max_factor": 16, "styles": ["plain"]},
        128,
    ),
    "calendar_arithmetic": (
        "calendar/1",
        {"year": 2023, "offset_upper_bound": 499, "tasks": ["weekday_offset"]},
        256,
    ),
    "binary_matrix": ("rows/1", {"min_n": 4, "max_n": 4, "p_zero": 0.2}, 128),
}

FAMILIES: Final = tuple(PAPER_FULL)
"""The names of the families, in the order that a suite of all of them has."""

NANO_DEFAULT: Final = tuple(name for name in FAMILIES if name not in ("arc_1d", "bf"))
"""The families of a small swarm: prompts of a dozen tokens. The other two are three times as long, and a
policy of a million parameters learns little from them (docs/results.md)."""
