"""Terms of islands of a new swarm: a constant number, or one that follows the number of paid accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from sapo_protocol.terms.islands import IslandTerms

FOLLOW: Final = "follow"
"""The number of islands follows the number of paid accounts on the ledger."""

ISLAND_ACCOUNTS: Final = 64
"""Paid accounts above which an island divides; a connection carries the messages of about 117."""

_MAX_ISLANDS: Final = 1024
_DAY_SECONDS: Final = 86_400


def islands_of(wanted: str | None, accounts: int, epoch_seconds: int) -> IslandTerms | None:
    """Return the terms of islands in a new swarm with a chain, or none where it is not to be divided.

    An account has one home for a day. Islands merge below three eighths of the accounts that divide them.

    Args:
        wanted: ``follow``, or a constant number of islands, a power of two.
        accounts: paid accounts per island above which the number of islands doubles.

    Raises:
        SapoError: there can be no such islands (exit code 2).
    """
    if wanted is None:
        return None
    from sapo_protocol.terms.islands import IslandTerms  # every command would import its hash function

    try:
        count = None if wanted == FOLLOW else int(wanted)
        return IslandTerms(
            most_accounts=accounts,
            least_accounts=max(1, 3 * accounts // 8),
            period_epochs=max(1, min(_DAY_SECONDS // epoch_seconds, 65_536)),
            most_islands=max(_MAX_ISLANDS, count or 1),
            count=count,
        )
    except (ValueError, LocalProtocolError) as error:
        raise SapoError(
            f"there cannot be {wanted!r} islands with up to {accounts} paid accounts each: {error}",
            hint=f"say --islands {FOLLOW}, or a power of two up to 65536; --island-accounts is 2 or more",
            exit_code=ExitCode.USAGE,
        ) from error
