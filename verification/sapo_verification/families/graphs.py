"""Families of ReasoningGYM's ``graphs`` category."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.families.kinds import Kind, Level

GRAPHS: Final[Mapping[str, Kind]] = {
    "family_relationships": Kind("caseless/1", full=Level({}, 16), easy=Level({"max_family_size": 4}, 16)),
    "largest_island": Kind(
        "exact/1", full=Level({}, 16), easy=Level({"max_rows": 5, "max_cols": 5, "max_num_islands": 3}, 16)
    ),
    "path_star": Kind("words/1", full=Level({}, 64), easy=Level({"degree": 2, "max_path_length": 3}, 32)),
    # difficulty 10 takes the generator up to 0.3 s
    "quantum_lock": Kind("stock/1", full=Level({"difficulty": 6}, 128), easy=Level({"difficulty": 2}, 64)),
    # the default's 0.4 leaves almost half of the grids without a path
    "shortest_path": Kind(
        "stock/1",
        full=Level({"p_blocked": 0.3}, 64),
        easy=Level({"max_rows": 5, "max_cols": 5, "p_blocked": 0.2}, 64),
    ),
}
