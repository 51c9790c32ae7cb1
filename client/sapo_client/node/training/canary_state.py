"""State of the canary, kept between checks and across restarts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from math import comb
from pathlib import Path
from typing import Final

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account

MANY: Final = 2**31

DEVIATIONS: Final = 3.0
"""Standard deviations of the mean reward beyond which a fall is not chance."""

SURE_RATIO: Final = 100.0
"""Of two likelihoods. A policy that is as good as its shadow exceeds it with a chance of 1 %, however often one
looks (Ville's inequality)."""

MOST_COMPARISONS: Final = 20
"""Checks without a verdict after which the policy becomes the shadow: what happened long ago would hide what
begins now."""

MOST_SETBACKS: Final = 7

QUICK: Final = 0.25
SLOW: Final = 0.05
"""Step sizes of the two running means, for each reward that is no fall."""


@dataclass(frozen=True, slots=True)
class CanaryState:
    """State of the canary.

    The control is the higher of two running means. The quick one follows a policy that learns; the slow one
    keeps the level from which a patient attacker lowers it, each time by less than chance. A control that
    never falls would be simpler, but it rises to the best of many checks, and then every average check
    looks like a fall.

    Attributes:
        quick: mean of the last few rewards that were no falls.
        slow: mean of the last twenty or so.
        falls: checks in a row below the control.
        most_external: J as it is now.
        quarantined: accounts of which nothing is trained, the first found first.
        checks: so far; each has items of its own.
        comparisons: checks since policy and shadow were the same.
        lost: items in those that only the shadow got right.
        won: items in those that only the policy got right.
        setbacks: how often others' text did harm and nobody knew whose, since it was of use.
        waits: checks until J rises again.
    """

    quick: float
    slow: float
    falls: int = 0
    most_external: int = MANY
    quarantined: tuple[Account, ...] = ()
    checks: int = 1
    comparisons: int = 0
    lost: int = 0
    won: int = 0
    setbacks: int = 0
    waits: int = 0

    @classmethod
    def begin(cls, reward: float, most_external: int = MANY) -> CanaryState:
        """Return the state after a first reward."""
        return cls(reward, reward, 0, most_external)

    def begun_again(self, reward: float) -> CanaryState:
        """Return the state in which this reward is the control; J and quarantine stay as they are."""
        return replace(self, quick=reward, slow=reward, falls=0)

    def compared(self, lost: int, won: int) -> CanaryState:
        """Return the state after a check in which so many items were lost and won against the shadow."""
        return replace(
            self,
            checks=self.checks + 1,
            comparisons=self.comparisons + 1,
            lost=self.lost + lost,
            won=self.won + won,
        )

    def same_again(self) -> CanaryState:
        """Return the state when policy and shadow have become the same."""
        return replace(self, comparisons=0, lost=0, won=0)

    def set_back(self) -> CanaryState:
        """Return the state after others' text did harm and nobody knows whose: each time J stays 0 longer."""
        setbacks = min(self.setbacks + 1, MOST_SETBACKS)
        return replace(self, most_external=0, setbacks=setbacks, waits=2**setbacks // 2)

    def passed(self) -> CanaryState:
        """Return the state after a check without harm: J rises by one, unless it has to wait."""
        if self.waits:
            return replace(self, waits=self.waits - 1)
        return replace(self, most_external=self.most_external + 1)

    @property
    def has_lost(self) -> bool:
        """Whether the policy is worse than its shadow, beyond chance."""
        return evidence(self.lost, self.won) > SURE_RATIO

    @property
    def has_won(self) -> bool:
        """Whether the policy is better than its shadow, beyond chance."""
        return evidence(self.won, self.lost) > SURE_RATIO

    @property
    def is_undecided(self) -> bool:
        """Whether policy and shadow have been alike for so long that any difference is small."""
        return self.comparisons >= MOST_COMPARISONS

    @property
    def control(self) -> float:
        """The reward that falls are measured from."""
        return max(self.quick, self.slow)

    def lowest(self, items: int, tolerance: float) -> float:
        """Return the least reward over so many items that is no fall, by tolerance and by chance."""
        variance = max(self.control * (1.0 - self.control), 1.0 / items)
        return self.control - max(tolerance * self.control, DEVIATIONS * math.sqrt(variance / items))

    def after(self, reward: float, lowest: float) -> CanaryState:
        """Return the state after a check."""
        if reward < lowest:
            return replace(self, falls=self.falls + 1)
        quick = self.quick + QUICK * (reward - self.quick)
        slow = self.slow + SLOW * (reward - self.slow)
        return replace(self, quick=quick, slow=slow, falls=0)


class CanaryFile:
    """File of the state, beside the checkpoints that it belongs to.

    Args:
        fresh: the policy starts anew, so a stored state is ignored.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._fresh = fresh

    def read(self, items: int) -> CanaryState | None:
        """Return the stored state; None if there is none, or it is damaged or of another number of items."""
        if self._fresh:
            return None
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            watch = dict(plain["watch"])
            accounts = tuple(Account.from_hex(each) for each in watch.pop("quarantined", ()))
            return CanaryState(**watch, quarantined=accounts) if plain["items"] == items else None
        except (OSError, ValueError, KeyError, TypeError, LocalProtocolError):
            return None

    def write(self, watch: CanaryState, items: int) -> None:
        """Replace the stored state atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        writing = self._path.with_suffix(".writing")
        plain = {**asdict(watch), "quarantined": [str(account) for account in watch.quarantined]}
        writing.write_text(json.dumps({"items": items, "watch": plain}) + "\n", encoding="utf-8")
        writing.replace(self._path)
        self._fresh = False


def evidence(more: int, less: int) -> float:
    """Return how much likelier the outcomes of fair comparisons are if one side wins more often.

    The numerator is the mean likelihood over all chances between a half and one, so that the value is a
    martingale while both sides are equal: it may be looked at after each check.
    """
    among = more + less
    return sum(comb(among + 1, k) for k in range(more + 1)) / ((among + 1) * comb(among, more))
