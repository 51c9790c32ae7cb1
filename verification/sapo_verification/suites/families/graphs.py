"""Families of ReasoningGYM's ``graphs`` category."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

GRAPHS: Final[Mapping[str, FamilySpec]] = {
    "family_relationships": FamilySpec(
        "caseless/1", full=Level({}, 16), easy=Level({"max_family_size": 4}, 16)
    ),
    "largest_island": FamilySpec(
        "exact/1", full=Level({}, 16), easy=Level({"max_rows": 5, "max_cols": 5, "max_num_islands": 3}, 16)
    ),
    "path_star": FamilySpec(
        "words/1", full=Level({}, 64), easy=Level({"degree": 2, "max_path_length": 3}, 32)
    ),
    # difficulty 10 takes the generator up to 0.3 s
    "quantum_lock": FamilySpec(
        "stock/1", full=Level({"difficulty": 6}, 128), easy=Level({"difficulty": 2}, 64)
    ),
    # the default's 0.4 leaves almost half of the grids without a path
    "shortest_path": FamilySpec(
        "stock/1",
        full=Level({"p_blocked": 0.3}, 64),
        easy=Level({"max_rows": 5, "max_cols": 5, "p_blocked": 0.2}, 64),
    ),
}
