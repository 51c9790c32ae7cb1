"""Families of ReasoningGYM's ``algebra`` and ``geometry`` categories."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

ALGEBRA: Final[Mapping[str, FamilySpec]] = {
    "advanced_geometry": FamilySpec("stock/1", full=Level({}, 32)),
    "polynomial_equations": FamilySpec(
        "roots/1",
        full=Level({}, 64),
        easy=Level({"max_terms": 3, "max_degree": 2, "max_value": 20}, 16),
        hint="Where there is no real solution, write none.",
    ),
    # items differ with PYTHONHASHSEED; workers run under 0
    "polynomial_multiplication": FamilySpec(
        "polynomial/1",
        full=Level({}, 128),
        easy=Level({"max_polynomials": 2, "max_degree": 1, "max_terms": 2, "max_value": 9}, 32),
    ),
    "simple_equations": FamilySpec(
        "exact/1", full=Level({}, 16), easy=Level({"max_terms": 2, "max_value": 10}, 16)
    ),
    "simple_geometry": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"max_sides": 3}, 16)),
    "simple_integration": FamilySpec(
        "antiderivative/1", full=Level({}, 64), easy=Level({"max_terms": 2, "max_degree": 3}, 32)
    ),
}
