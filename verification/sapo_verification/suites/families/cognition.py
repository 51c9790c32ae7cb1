"""Families of ReasoningGYM's ``cognition`` and ``arc`` categories: grids, cubes, sequences."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

COGNITION: Final[Mapping[str, FamilySpec]] = {
    "arc_agi": FamilySpec("words/1", full=Level({}, 2048)),
    "color_cube_rotation": FamilySpec("caseless/1", full=Level({}, 16), easy=Level({"max_rotations": 1}, 16)),
    "modulo_grid": FamilySpec(
        "words/1",
        full=Level({}, 2048),
        easy=Level({"size_x": 6, "size_y": 6, "max_divisor": 5, "max_target": 5}, 128),
    ),
    "needle_haystack": FamilySpec(
        "caseless/1", full=Level({}, 32), easy=Level({"min_num_statements": 3, "max_num_statements": 6}, 32)
    ),
    "number_sequence": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"max_complexity": 1}, 16)),
    "rearc": FamilySpec("words/1", full=Level({}, 2048)),
    "rectangle_count": FamilySpec(
        "exact/1", full=Level({}, 16), easy=Level({"max_rectangles": 4, "width": 30, "height": 20}, 16)
    ),
    "rubiks_cube": FamilySpec(
        "stock/1", full=Level({}, 1024), easy=Level({"min_scramble_steps": 2, "max_scramble_steps": 3}, 1024)
    ),
}
