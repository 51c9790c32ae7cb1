"""The number of islands: a pure function of how many accounts were paid in the last final epochs."""

from collections.abc import Sequence
from typing import Final

from sapo_protocol.constants import CONTRIBUTION_EPOCHS
from sapo_protocol.terms.islands import IslandTerms

PAID_EPOCHS: Final = CONTRIBUTION_EPOCHS
"""Final epochs that the number rests on: every node still holds what was granted in them."""


def island_count(terms: IslandTerms | None, paid: Sequence[int] = ()) -> int:
    """Return the number of islands, a power of two.

    It doubles and halves along the given epochs, with hysteresis: a number of accounts between both bounds
    changes nothing. It begins with the fewest islands that the oldest of these epochs fits on.

    Args:
        terms: of the manifest; without any there is one island.
        paid: accounts with points in each of the last ``PAID_EPOCHS`` final epochs, oldest first.
    """
    if terms is None:
        return 1
    if terms.count is not None:
        return terms.count
    count = 1
    for number, accounts in enumerate(paid[-PAID_EPOCHS:]):
        while count < terms.most_islands and accounts > terms.most_accounts * count:
            count *= 2
        while number and count > 1 and accounts < terms.least_accounts * count:
            count //= 2
    return count
