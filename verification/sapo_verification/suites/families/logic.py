"""Families of ReasoningGYM's ``logic`` and ``induction`` categories."""

from collections.abc import Mapping
from typing import Final

from sapo_verification.suites.families.kinds import FamilySpec, Level

LOGIC: Final[Mapping[str, FamilySpec]] = {
    "acre": FamilySpec("exact/1", full=Level({}, 16)),
    "aiw": FamilySpec("exact/1", full=Level({}, 16), easy=Level({"max_entities": 4}, 16)),
    "knights_knaves": FamilySpec("sentence/1", full=Level({}, 128)),
    "list_functions": FamilySpec("list/1", full=Level({}, 64)),
    "self_reference": FamilySpec("exact/1", full=Level({}, 16)),
    "zebra_puzzles": FamilySpec(
        "caseless/1",
        full=Level({"num_people": 4, "num_characteristics": 4}, 16),
        easy=Level({"num_people": 3, "num_characteristics": 3}, 16),
    ),
}
