"""Amounts of tokens: as decimal text, and in the token's smallest unit."""

from __future__ import annotations

from decimal import Decimal, Inexact, localcontext
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.units import TOKEN

_DIGITS: Final = 18
"""Decimals of the token, the usual number."""

_MAX: Final = 2**96
"""Upper bound of the vault's counters, exclusive."""


def parse_tokens(text: str) -> int:
    """Parse a positive amount into the token's smallest unit.

    Raises:
        SapoError: the text is not such an amount, or has too many decimals.
    """
    units = _units(text)
    if not 0 < units < _MAX:
        raise SapoError(
            f"{text!r} is not an amount of tokens",
            hint=f"write it like 100 or 2.5, with at most {_DIGITS} decimals",
            exit_code=ExitCode.USAGE,
        )
    return units


def _units(text: str) -> int:
    """Return the amount in the smallest unit; 0 if it cannot be expressed in it."""
    with localcontext(prec=100) as context:  # enough for every amount that a contract can count
        context.traps[Inexact] = True
        try:
            amount = Decimal(text).scaleb(_DIGITS)
            return int(amount.to_integral_exact()) if amount < _MAX else 0
        except ArithmeticError:
            return 0


def show_tokens(units: int) -> str:
    """Return an amount in whole tokens as exact decimal text."""
    whole, rest = divmod(units, TOKEN)
    return f"{whole}.{rest:0{_DIGITS}}".rstrip("0").rstrip(".")
