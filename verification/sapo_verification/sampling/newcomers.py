"""The random order (lots) in which newcomers get places in the pool when there are too few.

First come, first served would give all places to the account that sends most, and accounts cost little. Equal
parts would give no account enough audits to become known. So a few newcomers at a time get places, drawn at
random for some epochs: long enough to be audited as often as it takes; then others get the places. A flood of
a thousand accounts thus delays honest newcomers until the flood is known, but excludes nobody. Accounts of
which no group passes never become known; they are drawn more rarely after each audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.standing import Standing

LOT_EPOCHS: Final = 4
"""Epochs for which a lot is valid; an account with eight groups per epoch has twenty audits after three."""

ENOUGH: Final = 8
"""Places of an account; with this many, its next rollout replaces its oldest one."""


class NewcomerLots:
    """Random order of newcomers, drawn again every ``LOT_EPOCHS`` epochs.

    The probability of being before another account is proportional to the weight (weighted random sampling,
    Efraimidis and Spirakis, 2006). If weight is proportional to cost, a flood has to pay for the sum of its
    weights.

    Args:
        key: secret random bytes, new at each start, so that no attacker can create accounts with good lots.
        standing: gives the weights. In a swarm whose gate requires a bond the weight of an account is its
            part of a whole bond, so that accounts which share a bond have the chances of one account.
        passing_part: the part of an account's audited groups that passed, above 0 and at most 1. A lot is
            divided by it when it is drawn, so an account whose groups do not pass gets fewer places later.
    """

    def __init__(
        self,
        key: bytes,
        standing: Standing,
        passing_part: Callable[[Account], float],
    ) -> None:
        self._key = blake2b(key, person=b"newcomers' lots").digest()
        self._standing = standing
        self._passing_part = passing_part
        self._period = 0
        self._lots: dict[Account, float] = {}

    def revision(self, epoch: int) -> tuple[int, int]:
        """Return a value that changes whenever any lot does."""
        return epoch // LOT_EPOCHS, self._standing.revision

    def lot(self, account: Account, epoch: int) -> float:
        """Return an account's lot in an epoch; the account with the smallest lot comes first."""
        if epoch // LOT_EPOCHS != self._period:
            self._period, self._lots = epoch // LOT_EPOCHS, {}
        weight = self._standing.weight_of(account)
        if weight <= 0.0:
            return math.inf
        if account not in self._lots:
            self._lots[account] = self._drawn(account) / self._passing_part(account)
        return self._lots[account] / weight

    def _drawn(self, account: Account) -> float:
        message = self._period.to_bytes(8, "big", signed=True) + bytes(account)
        number = int.from_bytes(blake2b(message, key=self._key, digest_size=7).digest(), "big")
        return -math.log((number + 1) / 256**7)
