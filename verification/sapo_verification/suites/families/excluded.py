"""The ReasoningGYM families that no suite can hold, each with the reason."""

from collections.abc import Mapping
from typing import Final

_TWO_ANSWERS: Final = "there are two answers, so a constant is right on half of the items or more"

EXCLUDED: Final[Mapping[str, str]] = {
    "boxnet": "impossible moves are skipped, so a fixed tour of all boxes solves every board of its size",
    "circuit_logic": _TWO_ANSWERS,
    "codeio": "its generator runs packaged programs, and 5 to 20 % of its items differ between processes",
    "composite": "no family of its own: a container of others",
    "course_schedule": _TWO_ANSWERS,
    "figlet_font": "every item opens a font file, and no file can be opened in the sandbox",
    "game_of_life_halting": _TWO_ANSWERS,
    "intermediate_integration": "only computer algebra can judge an answer; stock runs it as code",
    "isomorphic_strings": _TWO_ANSWERS,
    "knight_swap": "its generator takes up to 5 s an item, at its smallest boards too",
    "ransom_note": _TWO_ANSWERS,
    "syllogism": _TWO_ANSWERS,
}
