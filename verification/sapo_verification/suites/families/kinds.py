"""Catalogue entries of the families beyond the paper's nine."""

from collections.abc import Mapping
from dataclasses import dataclass

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Level:
    """A generator's configuration and the size of its answers.

    Attributes:
        config: settings that differ from the release's defaults or define the level.
        answer_bytes: almost no honest answer is longer; a power of two.
    """

    config: Config
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class FamilySpec:
    """A family: its scorer and its levels.

    Attributes:
        hint: a line after the instruction, where the generator's question leaves the notation open.
    """

    scorer: str
    full: Level
    easy: Level | None = None
    hint: str = ""

    @property
    def levels(self) -> Mapping[str, Level]:
        """The levels by name, the easier first."""
        return {"full": self.full} if self.easy is None else {"easy": self.easy, "full": self.full}
