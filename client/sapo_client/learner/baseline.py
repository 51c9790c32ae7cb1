"""This node's own mean reward per family, as the baseline of other nodes' advantages.

The author of a group chooses all of its completions: one planted text among seven wrong ones has the group
advantage 2.47, only because of the wrong ones. Relative to the mean reward of *this* policy in the family,
the advantage of an answer does not depend on the rest of its group.

The advantage of reward r is (r - b) / max(s, ``MIN_DEVIATION``), where b is the running mean of own rewards
in the family and s = sqrt(b (1 - b)) the standard deviation of a reward that is 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

WINDOW: Final = 256
"""Values after which a mean becomes an exponential moving average."""

MIN_SAMPLES: Final = 32
"""With fewer own completions a family has no baseline."""

MIN_DEVIATION: Final = math.sqrt(1 / 8 * 7 / 8)
"""Deviation at one right answer in eight: no advantage is above 3.03, about the most in a group of eight."""


@dataclass(frozen=True, slots=True)
class RunningMean:
    """Mean of the values so far, of which the last ``WINDOW`` count most.

    Attributes:
        mean: of the values.
        samples: number of values so far.
    """

    mean: float = 0.0
    samples: int = 0

    def after(self, values: Sequence[float]) -> Self:
        """Return the mean updated with values, such as the rewards of one own group."""
        mean, samples = self.mean, self.samples
        for value in values:
            samples += 1
            mean += (value - mean) / min(samples, WINDOW)
        return replace(self, mean=mean, samples=samples)


@dataclass(frozen=True, slots=True)
class FamilyBaseline(RunningMean):
    """Running mean of own rewards in one family."""

    def advantages(self, rewards: Sequence[float]) -> tuple[float, ...]:
        """Return the advantages of another node's rewards relative to this baseline."""
        deviation = max(MIN_DEVIATION, math.sqrt(max(0.0, self.mean * (1.0 - self.mean))))
        return tuple((reward - self.mean) / deviation for reward in rewards)


@dataclass(frozen=True, slots=True)
class Baselines:
    """Baselines of all families, by index in the suite."""

    families: Mapping[int, FamilyBaseline]

    def after(self, family: int, rewards: Sequence[float]) -> Baselines:
        """Return the baselines updated with the rewards of one own group."""
        updated = self.families.get(family, FamilyBaseline()).after(rewards)
        return Baselines({**self.families, family: updated})

    def of(self, family: int | None) -> FamilyBaseline | None:
        """Return a family's baseline; None with fewer than ``MIN_SAMPLES`` own completions."""
        found = None if family is None else self.families.get(family)
        return found if found is not None and found.samples >= MIN_SAMPLES else None

    def to_message(self) -> dict[str, Any]:
        """Return the baselines as plain values."""
        return {str(family): asdict(baseline) for family, baseline in self.families.items()}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Baselines:
        """Return the baselines that ``to_message`` wrote."""
        return cls({int(family): FamilyBaseline(**plain) for family, plain in message.items()})
