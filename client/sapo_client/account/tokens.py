"""Tokens as people write them, and as contracts count them."""

from __future__ import annotations

from decimal import Decimal, Inexact, localcontext
from typing import Final

from sapo_client.errors import ExitCode, SapoError

_DIGITS: Final = 18
"""Behind the point, as almost every token has them; ours does."""

_MOST: Final = 2**96
"""What the vault's counters hold less than."""


def parse_tokens(text: str) -> int:
    """Return an amount above nothing, in the token's smallest unit.

    Raises:
        SapoError: the text is no such amount, or one that the smallest unit cannot express.
    """
    units = _units(text)
    if not 0 < units < _MOST:
        raise SapoError(
            f"{text!r} is no amount of tokens",
            hint=f"write it like 100 or 2.5, with at most {_DIGITS} digits behind the point",
            exit_code=ExitCode.USAGE,
        )
    return units


def _units(text: str) -> int:
    """Return the amount in the smallest unit; 0 where it cannot be written in it."""
    with localcontext(prec=100) as context:  # enough for every amount that a contract counts
        context.traps[Inexact] = True
        try:
            amount = Decimal(text).scaleb(_DIGITS)
            return int(amount.to_integral_exact()) if amount < _MOST else 0
        except ArithmeticError:
            return 0


def show_tokens(units: int) -> str:
    """Return an amount in whole tokens, to its last digit."""
    whole, rest = divmod(units, 10**_DIGITS)
    return f"{whole}.{rest:0{_DIGITS}}".rstrip("0").rstrip(".")
