"""The number of islands: a pure function of how many accounts were paid in the last final epochs."""

from collections.abc import Sequence

from sapo_protocol.constants import MERGED_EPOCHS, PAID_EPOCHS
from sapo_protocol.contributions import Proposal
from sapo_protocol.terms.islands import IslandTerms


def first_counted(epoch: int) -> int:
    """Return the oldest epoch from which the number of islands in an epoch is derived, if a later one is
    final."""
    return max(0, max(epoch, 1) - 1 - PAID_EPOCHS)


def counted_epochs(final: Sequence[int], epoch: int) -> tuple[int, ...]:
    """Return the final epochs from which the number of islands in an epoch is derived, ascending.

    They are those from ``first_counted`` on; if there are none, the last final one, however old it is.

    Args:
        final: epochs that are final at the block of the previous epoch's beacon, ascending.
    """
    return tuple(one for one in final if one >= first_counted(epoch)) or tuple(final[-1:])


def paid_accounts(proposal: Proposal) -> int:
    """Return how many accounts have points in the epoch that a proposal settles."""
    return sum(share.points > 0 for share in proposal.shares)


def island_count(terms: IslandTerms | None, paid: Sequence[int] = (), one_in: int = 1) -> int:
    """Return the number of islands, a power of two.

    It doubles and halves along the given epochs, with hysteresis: a number of accounts between both bounds
    changes nothing, and it halves only after several epochs of few accounts in a row. It begins with the
    fewest islands that the oldest of these epochs fits on.

    Args:
        terms: of the manifest; without any there is one island.
        paid: accounts with points in each of the ``counted_epochs``, oldest first.
        one_in: how many accounts each paid one stands for, with audits by sample.
    """
    if terms is None:
        return 1
    if terms.count is not None:
        return terms.count
    count = 1
    for behind, found in enumerate(paid, 1):
        while count < terms.most_islands and one_in * found > terms.most_accounts * count:
            count *= 2
        highest = one_in * max(paid[max(0, behind - MERGED_EPOCHS) : behind])
        while behind >= MERGED_EPOCHS and count > 1 and highest < terms.least_accounts * count:
            count //= 2
    return count
