"""State of the canary, kept between checks and across restarts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account
from sapo_verification.sampling.sampler import OPEN

SURE_RATIO: Final = 100.0
"""Of two likelihoods. A policy that is as good as its shadow exceeds it with a chance of 1 %, however often
one looks (Ville's inequality)."""

MOST_COMPARISONS: Final = 20
"""Checks without a verdict after which the policy becomes the shadow: what happened long ago would hide what
begins now."""

MOST_SETBACKS: Final = 7

MOST_NATS: Final = 700.0
"""Of evidence; the exponential function of a little more is no floating point number."""

MOST_QUARANTINED: Final = 64
"""Accounts; the one that was found first is released for another. Each check that passes releases one."""


@dataclass(frozen=True, slots=True)
class CanaryState:
    """State of the canary.

    Attributes:
        opening: how many of ``OPEN`` parts of others' text are used.
        checks: so far; each has items of its own.
        comparisons: checks since policy and shadow were the same.
        lost: items in those that only the shadow got right.
        won: items in those that only the policy got right.
        setbacks: how often others' text did harm and nobody knew whose, since it was of use.
        waits: checks until more of it is used.
        quarantined: accounts of which nothing is trained, the first found first.
    """

    opening: int = OPEN
    checks: int = 0
    comparisons: int = 0
    lost: int = 0
    won: int = 0
    setbacks: int = 0
    waits: int = 0
    quarantined: tuple[Account, ...] = ()

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
        """Return the state when policy and shadow have become the same; use of others' text ends setbacks."""
        setbacks = 0 if self.has_won else self.setbacks
        return replace(self, comparisons=0, lost=0, won=0, setbacks=setbacks)

    def passed(self) -> CanaryState:
        """Return the state after a check without harm: one more part is used, unless that has to wait."""
        released = replace(self, quarantined=self.quarantined[1:])
        if self.waits:
            return replace(released, waits=self.waits - 1)
        return replace(released, opening=min(OPEN, self.opening + 1))

    def set_back(self) -> CanaryState:
        """Return the state after harm by text of nobody knows whom: each time none is used for longer."""
        setbacks = min(self.setbacks + 1, MOST_SETBACKS)
        return replace(self, opening=0, setbacks=setbacks, waits=2**setbacks // 2)

    def quarantining(self, accounts: frozenset[Account]) -> CanaryState:
        """Return the state with further accounts in quarantine."""
        known = [each for each in self.quarantined if each not in accounts]
        return replace(self, quarantined=(*known, *sorted(accounts))[-MOST_QUARANTINED:])

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


class CanaryFile:
    """File of the state, beside the checkpoints that it belongs to.

    Args:
        fresh: the policy starts anew, so a stored state is ignored.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._fresh = fresh

    def read(self) -> CanaryState | None:
        """Return the stored state; None if there is none, or it is damaged or of an earlier version."""
        if self._fresh:
            return None
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            accounts = tuple(Account.from_hex(each) for each in plain.pop("quarantined"))
            return CanaryState(**plain, quarantined=accounts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, LocalProtocolError):
            return None

    def write(self, watch: CanaryState) -> None:
        """Replace the stored state atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        writing = self._path.with_suffix(".writing")
        plain = {**asdict(watch), "quarantined": [str(account) for account in watch.quarantined]}
        writing.write_text(json.dumps(plain) + "\n", encoding="utf-8")
        writing.replace(self._path)
        self._fresh = False


def evidence(more: int, less: int) -> float:
    """Return how much likelier the outcomes of fair comparisons are if one side wins more often.

    The numerator is the mean likelihood over all chances between a half and one, so that the value is a
    martingale while both sides are equal: it may be looked at after each check.
    """
    among = more + less
    if among == 0:
        return 1.0
    # in logarithms, for the likelihoods of thousands of items are no floating point numbers
    tail = _log_tail(more, among + 1)
    nats = tail + (among + 1) * math.log(2) - math.log(among + 1) - log_comb(among, more)
    return math.exp(min(MOST_NATS, nats))


def log_comb(among: int, count: int) -> float:
    """Return the logarithm of the number of ways to choose so many."""
    return math.lgamma(among + 1) - math.lgamma(count + 1) - math.lgamma(among - count + 1)


def log_sum(logs: Iterable[float]) -> float:
    """Return the logarithm of the sum of numbers that are given by their logarithms."""
    known = list(logs)
    highest = max(known)
    return highest + math.log(math.fsum(math.exp(each - highest) for each in known))


def _log_tail(most: int, among: int) -> float:
    """Return the logarithm of the chance that at most so many fair coins show heads."""
    return log_sum(log_comb(among, count) for count in range(most + 1)) - among * math.log(2)
