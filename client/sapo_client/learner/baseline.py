"""This node's own success per family, as the measure of other nodes' answers.

An author composes his group as he likes: one planted text beside seven pieces of gibberish has the advantage
2.47 that only the gibberish gives it. Measured against what *this* policy earns in that family it has what a
right answer is worth here, whatever stands beside it.

The advantage of reward r is (r - b) / max(s, ``LEAST_DEVIATION``), with b the running mean of own rewards in
the family and s = sqrt(b (1 - b)), the deviation of a reward that is 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

MEMORY: Final = 256
"""Own completions per family that the mean remembers."""

LEAST_SAMPLES: Final = 32
"""Before so many own completions a family has no baseline."""

LEAST_DEVIATION: Final = math.sqrt(1 / 8 * 7 / 8)
"""That of one right answer in eight: no advantage is above 3.03, about what a group of eight can have."""


@dataclass(frozen=True, slots=True)
class FamilyBaseline:
    """Running mean of own rewards in one family, and how many there were."""

    mean: float = 0.0
    samples: int = 0

    def after(self, rewards: Sequence[float]) -> FamilyBaseline:
        """The baseline with one more own group."""
        mean, samples = self.mean, self.samples
        for reward in rewards:
            samples += 1
            mean += (reward - mean) / min(samples, MEMORY)
        return FamilyBaseline(mean, samples)

    def advantages(self, rewards: Sequence[float]) -> tuple[float, ...]:
        """What the rewards of another node's group are worth here."""
        deviation = max(LEAST_DEVIATION, math.sqrt(max(0.0, self.mean * (1.0 - self.mean))))
        return tuple((reward - self.mean) / deviation for reward in rewards)


@dataclass(frozen=True, slots=True)
class Baselines:
    """The baselines of all families, by their index in the suite."""

    families: Mapping[int, FamilyBaseline]

    def after(self, family: int, rewards: Sequence[float]) -> Baselines:
        """The baselines with one more own group."""
        updated = self.families.get(family, FamilyBaseline()).after(rewards)
        return Baselines({**self.families, family: updated})

    def of(self, family: int | None) -> FamilyBaseline | None:
        """A family's baseline, or none before enough own completions."""
        found = None if family is None else self.families.get(family)
        return found if found is not None and found.samples >= LEAST_SAMPLES else None

    def to_message(self) -> dict[str, Any]:
        """The baselines as plain values."""
        return {str(family): asdict(baseline) for family, baseline in self.families.items()}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Baselines:
        """The baselines that ``to_message`` wrote."""
        return cls({int(family): FamilyBaseline(**plain) for family, plain in message.items()})
