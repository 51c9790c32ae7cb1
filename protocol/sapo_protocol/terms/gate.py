"""The gate: what an account must have on the chain before its rollouts count."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from sapo_protocol.decoding import Value
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account

_MAX_UNIT_BITS: Final = 96
"""What the contract keeps of an account's tokens: enough for 79 billion tokens of 18 decimals."""


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Every account counts in full, whatever it has; the same as no gate, said openly."""

    def to_value(self) -> Value:
        """Return the gate inside an encoded manifest."""
        return {0: 0}


@dataclass(frozen=True, slots=True)
class BondGate:
    """An account counts by the tokens that it has bonded: in full from one unit on, below it in proportion.

    Attributes:
        contract: the ``AccountBond``, which holds the tokens.
        unit: the smallest amount of the token, in its smallest part, that counts in full; below 2^96.
        exit_seconds: how long a bond stays within reach of a proof after its owner has asked for it back.
    """

    contract: Account
    unit: int
    exit_seconds: int

    def __post_init__(self) -> None:
        if not 1 <= self.unit < 1 << _MAX_UNIT_BITS:
            raise LocalProtocolError(f"a unit of a bond is 1 to 2^{_MAX_UNIT_BITS} - 1 of the token's parts")

    def units(self, bonded: int) -> Fraction:
        """Return what an account counts with so many tokens bonded, 0 to 1: in proportion, and never above 1.

        Args:
            bonded: in the token's smallest part.
        """
        return min(Fraction(1), Fraction(bonded, self.unit))

    def to_value(self) -> Value:
        """Return the gate inside an encoded manifest; the unit as bytes, for it may exceed 64 bits."""
        unit = self.unit.to_bytes((self.unit.bit_length() + 7) // 8, "big")
        return {0: 1, 1: bytes(self.contract), 2: unit, 3: self.exit_seconds}


Gate = OpenGate | BondGate


def points_cap(points_per_epoch: int, units: Fraction) -> int:
    """Return the most points that an account earns in an epoch: its part of a whole account's, rounded down.

    The caps of accounts that share one bond therefore never sum to more than that of one with all of it.
    """
    return int(points_per_epoch * units)
