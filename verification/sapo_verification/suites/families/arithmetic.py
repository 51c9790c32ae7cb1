"""Families of ReasoningGYM's ``arithmetic`` and ``probability`` categories."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

ARITHMETIC: Final[Mapping[str, FamilySpec]] = {
    "bitwise_arithmetic": FamilySpec(
        "hexadecimal/1", full=Level({"difficulty": 2}, 32), easy=Level({"difficulty": 1}, 16)
    ),
    "chain_sum": FamilySpec(
        "number/1", full=Level({}, 16), easy=Level({"max_terms": 3, "max_digits": 1}, 16)
    ),
    "coin_flip": FamilySpec("probability/1", full=Level({}, 16), easy=Level({"max_trials": 5}, 16)),
    "complex_arithmetic": FamilySpec(
        "complex/1",
        full=Level({}, 16),
        easy=Level({"min_real": -3, "max_real": 3, "min_imag": -3, "max_imag": 3}, 16),
    ),
    "count_bits": FamilySpec(
        "exact/1", full=Level({"max_n": 2147483647}, 16), easy=Level({"max_n": 255}, 16)
    ),
    "decimal_chain_sum": FamilySpec(
        "number/1",
        full=Level({}, 16),
        easy=Level({"max_terms": 2, "max_digits": 1, "max_decimal_places": 1}, 16),
    ),
    "dice": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"num_dice": 2, "max_dice_size": 6}, 16)),
    "gcd": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"max_value": 100}, 16)),
    "gsm_symbolic": FamilySpec("number/1", full=Level({}, 16)),
    "lcm": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"max_value": 20}, 16)),
    "leg_counting": FamilySpec(
        "exact/1",
        full=Level({}, 16),
        easy=Level({"min_animals": 1, "max_animals": 2, "max_instances": 5}, 16),
    ),
    "number_format": FamilySpec(
        "number/1", full=Level({}, 32), easy=Level({"max_num_candidates": 2, "max_n": 10000}, 32)
    ),
    "power_function": FamilySpec(
        "significant/1",
        full=Level({}, 32),
        easy=Level({"min_base": -20, "max_base": 20, "min_exponent": 1, "max_exponent": 3}, 32),
    ),
    "prime_factorization": FamilySpec("factors/1", full=Level({}, 32), easy=Level({"max_value": 60}, 32)),
    "products": FamilySpec("number/1", full=Level({}, 16), easy=Level({"max_digits": 1}, 16)),
    "time_intervals": FamilySpec(
        "exact/1",
        full=Level(
            {"task_types": ["time", "time_seconds", "time_ms", "date", "datetime", "datetime_tz"]}, 32
        ),
        easy=Level({"task_types": ["time"], "max_time_difference_seconds": 3600}, 16),
    ),
}
