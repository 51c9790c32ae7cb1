"""The random order (lots) in which newcomers get places in the pool when there are too few.

First come, first served would give all places to the account that sends most, and accounts cost little. Equal
parts would give no account enough audits to become known. So a few newcomers at a time get places, drawn at
random for some epochs: long enough to be audited as often as it takes; then others get the places. A flood of
a thousand accounts thus delays honest newcomers until the flood is known, but excludes nobody. Accounts of
which no group passes never become known; they are drawn more rarely after each audit.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Protocol

from sapo_protocol.identifiers import Account

LOT_EPOCHS: Final = 4
"""Epochs for which a lot is valid; an account with eight groups per epoch has twenty audits after three."""

ENOUGH: Final = 8
"""Places of an account; with so many, its next rollout replaces its oldest one."""

USUAL_WEIGHT: Final = 1.0

MAX_WEIGHED: Final = 65_536
"""Accounts whose weight is kept; beyond it the one set longest ago is dropped."""


class NewcomerWeights(Protocol):
    """Default weights of accounts."""

    @property
    def revision(self) -> int:
        """A number that changes when any weight does."""

    def weight_of(self, account: Account) -> float:
        """Return an account's weight, 0 or more."""


class EqualWeights:
    """The usual weight for every account."""

    revision: Final = 0

    def weight_of(self, _account: Account) -> float:
        """Return the usual weight."""
        return USUAL_WEIGHT


_EQUAL: Final = EqualWeights()


class NewcomerLots:
    """Random order of newcomers, drawn again every ``LOT_EPOCHS`` epochs.

    The probability of being before another account is proportional to the weight (weighted random sampling,
    Efraimidis and Spirakis, 2006). If weight is proportional to cost, a flood has to pay for the sum of its
    weights.

    Args:
        key: secret random bytes, new at each start, so that no attacker can create accounts with good lots.
        weights: default weight of an account. In a swarm whose gate requires a bond it is the account's part
            of a whole bond, so that accounts which share a bond have the chances of one account.
        passing_part: the part of an account's audited groups that passed, above 0 and at most 1. A lot is
            divided by it when it is drawn, so an account whose groups do not pass gets fewer places later.
    """

    def __init__(
        self,
        key: bytes,
        weights: NewcomerWeights = _EQUAL,
        passing_part: Callable[[Account], float] = lambda _: 1.0,
    ) -> None:
        self._key = blake2b(key, person=b"newcomers' lots").digest()
        self._usual = weights
        self._passing_part = passing_part
        self._weights: OrderedDict[Account, float] = OrderedDict()
        self._times_weighed = 0
        self._period = 0
        self._lots: dict[Account, float] = {}

    def weigh(self, account: Account, weight: float) -> None:
        """Set an account's weight, 0 or more; with 0 it comes after all others."""
        self._times_weighed += 1
        self._weights[account] = weight
        self._weights.move_to_end(account)
        if len(self._weights) > MAX_WEIGHED:
            self._weights.popitem(last=False)

    def revision(self, epoch: int) -> tuple[int, int, int]:
        """Return a value that changes whenever any lot does."""
        return epoch // LOT_EPOCHS, self._times_weighed, self._usual.revision

    def lot(self, account: Account, epoch: int) -> float:
        """Return an account's lot in an epoch; the account with the smallest lot comes first."""
        if epoch // LOT_EPOCHS != self._period:
            self._period, self._lots = epoch // LOT_EPOCHS, {}
        weight = self._weights[account] if account in self._weights else self._usual.weight_of(account)
        if weight <= 0.0:
            return math.inf
        if account not in self._lots:
            self._lots[account] = self._drawn(account) / self._passing_part(account)
        return self._lots[account] / weight

    def _drawn(self, account: Account) -> float:
        message = self._period.to_bytes(8, "big", signed=True) + bytes(account)
        number = int.from_bytes(blake2b(message, key=self._key, digest_size=7).digest(), "big")
        return -math.log((number + 1) / 256**7)
