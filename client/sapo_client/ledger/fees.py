"""EIP-1559 fees of a transaction, and of its replacement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from web3 import Web3

from sapo_client.ledger.errors import LedgerError

GWEI: Final = 10**9

DEFAULT_LIMIT_WEI: Final = 100 * GWEI
"""Default limit, wei per unit of gas. A claim takes about a hundred thousand gas: at most 0.01 coins."""

STUCK_BLOCKS: Final = 6
"""A transaction that is not mined for so many blocks needs higher fees: then the headroom may be used up."""

_BASE_FEE_HEADROOM: Final = 2
"""Headroom over the base fee, which at most doubles in six full blocks; the excess is not paid."""

_BUMP: Final = (9, 8)
"""Increase of a replacement: Ethereum nodes require one tenth, some one eighth."""

URGENT_BLOCKS: Final = 2
"""As ``STUCK_BLOCKS``, for a challenge, which is worthless after its window."""

_URGENT_BUMP: Final = (2, 1)
"""Ten doublings in the half window of ten minutes that is left on a chain of twelve seconds."""


@dataclass(frozen=True, slots=True)
class Fees:
    """The two fees of EIP-1559, in wei per unit of gas.

    Attributes:
        tip: for the block's author.
        max_fee: maximum fee in total (``maxFeePerGas``); only base fee and tip are paid.
    """

    tip: int
    max_fee: int


def quote(web3: Web3, limit_wei: int) -> Fees:
    """Return the current fees.

    Raises:
        LedgerError: even the next block costs more than the limit.
    """
    tip = int(web3.eth.max_priority_fee)
    block = web3.eth.get_block("latest")
    if "baseFeePerGas" not in block:
        raise LedgerError(
            "the chain's blocks have no base fee, so it takes no transactions of EIP-1559",
            hint="use a chain that does: every public test network of Ethereum",
        )
    base = int(block["baseFeePerGas"])
    if base + tip > limit_wei:
        raise LedgerError(
            f"a transaction costs {(base + tip) / GWEI:.3g} gwei per gas now, more than the limit",
            hint=f"it waits until fees fall; the limit is ledger.max_fee_gwei, now {limit_wei / GWEI:.3g}",
        )
    return Fees(tip, min(_BASE_FEE_HEADROOM * base + tip, limit_wei))


def middle(quotes: Sequence[Fees]) -> Fees:
    """Return the median quote, of two the lower one, so that no single endpoint sets the fees."""
    place = (len(quotes) - 1) // 2
    tip = sorted(quote.tip for quote in quotes)[place]
    return Fees(tip, max(tip, sorted(quote.max_fee for quote in quotes)[place]))


def bump(old: Fees, today: Fees, limit_wei: int, *, urgent: bool = False) -> Fees | None:
    """Return the fees of a replacement; none if the increase that nodes require would exceed the limit."""
    lowest = Fees(_raised(old.tip, _BUMP), _raised(old.max_fee, _BUMP))
    if lowest.max_fee > limit_wei or lowest.tip > limit_wei:
        return None
    wanted = Fees(_raised(old.tip, _URGENT_BUMP), _raised(old.max_fee, _URGENT_BUMP)) if urgent else lowest
    max_fee = min(max(wanted.max_fee, today.max_fee), limit_wei)
    return Fees(min(max(wanted.tip, today.tip), max_fee), max_fee)


def _raised(fee: int, factor: tuple[int, int]) -> int:
    numerator, denominator = factor
    return max(fee + 1, -(-fee * numerator // denominator))  # of nothing, an eighth more is nothing
