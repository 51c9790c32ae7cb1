"""The terms of islands: how a swarm of many accounts is divided; a node subscribes to two of the parts."""

from dataclasses import dataclass
from typing import Final

from sapo_protocol.decoding import Value
from sapo_protocol.errors import LocalProtocolError

MAX_ISLANDS: Final = 65_536
"""A million accounts at 16 to an island; an island's number fits two bytes."""

MAX_PERIOD_EPOCHS: Final = 65_536
"""A node keeps the beacons of a period: 2 MiB at most."""


@dataclass(frozen=True, slots=True)
class IslandTerms:
    """How many islands a swarm has, and how long an account lives on one.

    Attributes:
        most_accounts: paid accounts to an island above which the number of islands doubles.
        least_accounts: paid accounts to an island below which it halves, after some epochs; at most half of
            the above, or a swarm would halve again what it has doubled.
        period_epochs: epochs for which an account has one home, and a node one island to visit.
        most_islands: never more; a power of two.
        count: a constant number of islands instead, a power of two; a swarm without a chain needs one.
    """

    most_accounts: int
    least_accounts: int
    period_epochs: int
    most_islands: int
    count: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.least_accounts <= self.most_accounts // 2 or self.most_accounts >= 2**32:
            raise LocalProtocolError("islands merge below 1 to half of the accounts above which they divide")
        if not 1 <= self.period_epochs <= MAX_PERIOD_EPOCHS:
            raise LocalProtocolError(f"a period lasts 1 to {MAX_PERIOD_EPOCHS} epochs")
        if not _is_power_of_two(self.most_islands) or self.most_islands > MAX_ISLANDS:
            raise LocalProtocolError(f"most_islands is a power of two up to {MAX_ISLANDS}")
        if self.count is not None and (not _is_power_of_two(self.count) or self.count > self.most_islands):
            raise LocalProtocolError("the number of islands is a power of two up to most_islands")

    def to_value(self) -> Value:
        """Return the terms inside an encoded manifest."""
        value: dict[int, Value] = {
            0: self.most_accounts,
            1: self.least_accounts,
            2: self.period_epochs,
            3: self.most_islands,
        }
        return value if self.count is None else {**value, 4: self.count}


def _is_power_of_two(number: int) -> bool:
    return number >= 1 and number & (number - 1) == 0
