"""Difficulty that follows the swarm: ladders of levels, the record of an epoch, and the mix of levels.

A ladder is a list of families of the suite, easiest first, which are one family at several levels. Auditors
count how many groups of each were all right, mixed and all wrong. The record of an epoch is a pure function
of these counts and of the last final record; it says how much of each ladder's slots is of which level.
Integers only, so that every node has the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from itertools import chain
from statistics import median_low
from typing import Final, NamedTuple, Self

from sapo_protocol.constants import MAX_COMPLETIONS
from sapo_protocol.decoding import Value
from sapo_protocol.errors import LocalProtocolError

WHOLE: Final = 1000
"""The weight of a level that is a ladder's only one; also the distance between two levels of a position."""

MIN_GROUPS: Final = 8
"""Fewer groups than these say nothing about a level or a ladder."""

MAX_COUNTED: Final = 2**32 - 1
"""A larger count of a tally is clipped to this, so that sums always stay below 64 bits."""

VALUES_OF_A_POINT: Final = 8
"""Fractions of a point: a group of a level that is hard for the swarm is worth 8/8, of a mastered level
7/8."""

_LOT_BITS: Final = 32


class Outcomes(NamedTuple):
    """How many counted groups of a family were all right, mixed (both right and wrong) and all wrong."""

    right: int = 0
    mixed: int = 0
    wrong: int = 0


class GroupOutcome(IntEnum):
    """The outcome of a group: the index of its count in ``Outcomes``."""

    RIGHT = 0
    MIXED = 1
    WRONG = 2

    @classmethod
    def of(cls, right: int, wrong: int) -> Self:
        """Return the outcome of a group with these numbers of right and wrong answers."""
        return cls.RIGHT if not wrong else cls.MIXED if right else cls.WRONG


class LevelRecord(NamedTuple):
    """The record of an epoch for one family of the suite.

    Attributes:
        right: groups that were all right; older epochs count half as much with each epoch that follows.
        mixed: groups with right and wrong answers, counted so.
        wrong: groups that were all wrong, counted so.
        weight: in thousandths; those of a ladder's levels add up to 1,000, a family of no ladder has 1,000.
    """

    right: int
    mixed: int
    wrong: int
    weight: int

    @property
    def groups(self) -> int:
        """All groups behind the row."""
        return self.right + self.mixed + self.wrong

    @property
    def value(self) -> int:
        """Pay of a group with a right answer, in eighths of a point: 8, or 7 where the swarm masters it.

        Three quarters of the swarm's groups are all right there, more than at any level where a ladder rests.
        It does not depend on the group itself, so no answer is paid less for being right.
        """
        is_mastered = self.groups >= MIN_GROUPS and 4 * self.right >= 3 * self.groups
        return VALUES_OF_A_POINT - 1 if is_mastered else VALUES_OF_A_POINT


Record = tuple[LevelRecord, ...]
"""The record of an epoch: a row per family of the suite."""


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The ladders of a swarm, and the constants of the rule that moves it along them.

    Attributes:
        ladders: indices into the suite's families, easiest level first; a family is in one ladder at most.
        step: how far a ladder moves in one epoch at most, in thousandths of the way between two levels.
        floor: least weight of a level that is in use or next to one.
        groups: most groups that one account is counted with in one family and epoch.
        completions: fewest completions of a group that counts.
    """

    ladders: tuple[tuple[int, ...], ...]
    step: int = 500
    floor: int = 125
    groups: int = 32
    completions: int = 4

    def __post_init__(self) -> None:
        named = [*chain(*self.ladders)]
        if not self.ladders or any(len(ladder) < 2 for ladder in self.ladders):
            raise LocalProtocolError("difficulty has at least one ladder, and a ladder two levels or more")
        if len(set(named)) < len(named):
            raise LocalProtocolError("a family is at most once in the ladders")
        if not (1 <= self.step <= WHOLE and 0 <= self.floor <= WHOLE and self.groups >= 1):
            raise LocalProtocolError("a ladder's step is 1 to 1000, its floor 0 to 1000, groups at least 1")
        if not 1 <= self.completions <= MAX_COMPLETIONS:
            raise LocalProtocolError(f"a group that counts has 1 to {MAX_COMPLETIONS} completions at least")

    def require_families(self, families: int, max_completions: int) -> None:
        """Raise unless a suite with ``families`` families has all levels, and a group can count."""
        if max(chain(*self.ladders)) >= families:
            raise LocalProtocolError(f"a ladder names a family beyond the suite's {families}")
        if self.completions > max_completions:
            raise LocalProtocolError(
                f"groups have at most {max_completions} completions, so none would count"
            )

    def to_value(self) -> Value:
        """Return the term inside an encoded manifest."""
        return {0: self.ladders, 1: self.step, 2: self.floor, 3: self.groups, 4: self.completions}

    def start(self, families: int) -> Record:
        """Return the record in force before any epoch is final: every ladder at its lowest level."""
        higher = {family for ladder in self.ladders for family in ladder[1:]}
        return tuple(LevelRecord(0, 0, 0, 0 if family in higher else WHOLE) for family in range(families))

    def follow(self, before: Record, outcomes: Sequence[Outcomes]) -> Record:
        """Return the record of an epoch from the last final one and the epoch's counts, a row per family.

        Each ladder moves up by ``step`` times the part of its groups with a right answer, and down by three
        times the part without: it rests where a quarter of the groups is all wrong. Whether the others are
        all right or mixed depends on the policies, and pay does not.
        """
        weights = dict.fromkeys(range(len(before)), WHOLE)
        for ladder in self.ladders:
            position = sum(place * before[family].weight for place, family in enumerate(ladder))
            total = Outcomes(*map(sum, zip(*(outcomes[family] for family in ladder), strict=True)))
            moved = min(max(0, position + self._move(total)), WHOLE * (len(ladder) - 1))
            weights |= _weights(ladder, moved)
        return tuple(
            LevelRecord(
                row.right // 2 + count.right,
                row.mixed // 2 + count.mixed,
                row.wrong // 2 + count.wrong,
                weights[family],
            )
            for family, (row, count) in enumerate(zip(before, outcomes, strict=True))
        )

    def is_sound(self, record: Record) -> bool:
        """Whether the weights of every ladder's levels add up to a thousand, and others have a thousand."""
        parts = [*self.ladders, *((family,) for family in self._free(len(record)))]
        return all(sum(record[family].weight for family in part) == WHOLE for part in parts)

    def mix(self, record: Record) -> tuple[int, ...]:
        """Return the weight of every family, floors included; 0 where no slot has the level."""
        mix = [row.weight for row in record]
        for ladder in self.ladders:
            for place, family in enumerate(ladder):
                if any(record[near].weight for near in ladder[max(0, place - 1) : place + 2]):
                    mix[family] = max(mix[family], self.floor)
        return tuple(mix)

    def families_of(self, record: Record, lot: int) -> tuple[int, ...]:
        """Return the families that a slot's lot allows, ascending: one level per ladder, and all others.

        Args:
            lot: of the slot, below 2^32.
        """
        mix = self.mix(record)
        levels = {_level(ladder, mix, lot) for ladder in self.ladders}
        return tuple(sorted(self._free(len(record)) | levels))

    def _free(self, families: int) -> set[int]:
        """Return the families of no ladder."""
        return set(range(families)).difference(*self.ladders)

    def _move(self, total: Outcomes) -> int:
        groups = sum(total)
        if groups < MIN_GROUPS:
            return 0
        surplus = total.right + total.mixed - 3 * total.wrong
        distance = min(self.step, self.step * abs(surplus) // groups)
        return distance if surplus > 0 else -distance


def middle_outcomes(groups: Mapping[bytes, Sequence[GroupOutcome]]) -> Outcomes:
    """Return the outcomes of a family's middle third of groups, in the order of their accounts' wrong parts.

    So what less than a third of the accounts does on purpose counts for no more than the honest accounts
    differ, also if it makes more groups than they do.

    Args:
        groups: of each account with any, in the order of slots.
    """
    max_groups = median_low(map(len, groups.values())) if groups else 0
    taken = {account: found[:max_groups] for account, found in groups.items()}

    def rank(account: bytes) -> tuple[Fraction, bytes]:
        found = taken[account]
        return Fraction(found.count(GroupOutcome.WRONG), len(found)), account

    ordered = [outcome for account in sorted(taken, key=rank) for outcome in taken[account]]
    third = len(ordered) // 3
    middle = Counter(ordered[third : len(ordered) - third])
    return Outcomes(*(middle[outcome] for outcome in GroupOutcome))


def median_outcomes(tallies: Sequence[Sequence[Outcomes]]) -> tuple[Outcomes, ...]:
    """Return the lower median over tallies of every count of every family."""
    return tuple(
        Outcomes(*(min(MAX_COUNTED, median_low(counts)) for counts in zip(*rows, strict=True)))
        for rows in zip(*tallies, strict=True)
    )


def points_of(groups: Mapping[int, int], record: Record) -> int:
    """Return the points for each family's number of groups with a right answer, rounded down.

    Args:
        groups: how many, by family.
        record: that in force in their epoch.
    """
    return sum(count * record[family].value for family, count in groups.items()) // VALUES_OF_A_POINT


def _weights(ladder: Sequence[int], position: int) -> dict[int, int]:
    """Return the weights of a ladder's levels at a position: those of the two levels beside it."""
    lower, beyond = divmod(position, WHOLE)
    weights = dict.fromkeys(ladder, 0)
    weights[ladder[lower]] = WHOLE - beyond
    if beyond:
        weights[ladder[lower + 1]] = beyond
    return weights


def _level(ladder: Sequence[int], mix: Sequence[int], lot: int) -> int:
    """Return the level of a ladder whose part of the weights a lot falls into."""
    place = lot * sum(mix[family] for family in ladder) >> _LOT_BITS
    for family in ladder:
        if place < mix[family]:
            return family
        place -= mix[family]
    raise AssertionError("a lot is below 2^32")
