"""Lots by which newcomers get places when they want more than there are.

First come, first served gives all places to whoever sends most, and an account costs little. Equal parts for
all give nobody enough audits to become known. So a few newcomers at a time get places, drawn by lot for some
epochs: long enough to be audited as often as it takes, then the places are free for others. A flood of a
thousand accounts then delays honest newcomers by as long as it takes to come to know the flood, and shuts
nobody out. Accounts of which nothing passes never become known; they are drawn more rarely with each audit.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Protocol

from sapo_protocol.identifiers import Account

LOT_EPOCHS: Final = 4
"""Epochs for which a lot is valid: an account with eight groups an epoch is audited twenty times in three."""

ENOUGH: Final = 8
"""Places of an account beyond which its next rollout takes the place of its oldest one."""

USUAL_WEIGHT: Final = 1.0

MOST_WEIGHED: Final = 65_536
"""Accounts whose weight is kept; the one set longest ago is dropped."""


class NewcomerWeights(Protocol):
    """Weights of accounts for which none was set."""

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
    """Order of newcomers, drawn anew every few epochs.

    The probability of being before another account is proportional to the weight (Efraimidis and Spirakis,
    2006), so an account that costs twice as much may weigh twice as much, and the sum of weights is what a
    flood has to pay for.

    Args:
        key: random bytes of this start, so that no attacker can look for accounts with good lots.
        weights: an account's weight where none was set: its part of a bond in a swarm whose gate asks for
            one, so that accounts which share a bond have the lots of one account.
        passing_part: the part of an account's audited groups that passed, above 0 and at most 1. It divides
            a lot when it is drawn: who fills places with groups that never pass has few of them later.
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
        """Set an account's weight, 1 or its bond's by default; with 0 it yields to all others."""
        self._times_weighed += 1
        self._weights[account] = weight
        self._weights.move_to_end(account)
        if len(self._weights) > MOST_WEIGHED:
            self._weights.popitem(last=False)

    def revision(self, epoch: int) -> tuple[int, int, int]:
        """Return what is another once any lot is; while it is the same, so is every lot."""
        return epoch // LOT_EPOCHS, self._times_weighed, self._usual.revision

    def lot(self, account: Account, epoch: int) -> float:
        """Return an account's lot in an epoch: the smaller, the sooner it gets places."""
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
