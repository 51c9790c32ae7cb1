"""The gate: what an account must have on the chain before its rollouts count."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

from sapo_protocol.decoding import Value
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest

_MAX_UNIT_BITS: Final = 96
"""Bits of an account's tokens in the contract: enough for 79 billion tokens of 18 decimals."""

MAX_ATTESTERS: Final = 16


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Every account counts in full: the same as no gate, stated explicitly."""

    def to_value(self) -> Value:
        """Return the gate inside an encoded manifest."""
        return {0: 0}


@dataclass(frozen=True, slots=True)
class BondGate:
    """An account counts in proportion to its bonded tokens, and in full from one unit on.

    Attributes:
        contract: the ``AccountBond``, which holds the tokens.
        unit: the smallest amount that counts in full, in the token's smallest denomination; below 2^96.
        exit_seconds: how long a bond can still be slashed after its owner has asked for it back.
    """

    contract: Account
    unit: int
    exit_seconds: int

    def __post_init__(self) -> None:
        if not 1 <= self.unit < 1 << _MAX_UNIT_BITS:
            raise LocalProtocolError(f"a unit of a bond is 1 to 2^{_MAX_UNIT_BITS} - 1 of the token's parts")

    def units(self, bonded: int) -> Fraction:
        """Return the units of an account with an amount of bonded tokens: in proportion, 0 to 1.

        Args:
            bonded: in the token's smallest part.
        """
        return min(Fraction(1), Fraction(bonded, self.unit))

    def to_value(self) -> Value:
        """Return the gate inside an encoded manifest; the unit as bytes, for it may exceed 64 bits."""
        unit = self.unit.to_bytes((self.unit.bit_length() + 7) // 8, "big")
        return {0: 1, 1: bytes(self.contract), 2: unit, 3: self.exit_seconds}


@dataclass(frozen=True, slots=True)
class Attestation:
    """The fields of an attestation in the Ethereum Attestation Service that a gate checks.

    Attributes:
        schema: of its content, by its uid.
        attested_seconds: timestamp of its block.
        expiration_seconds: 0 if it never expires.
        revocation_seconds: timestamp of the block that revoked it; 0 if it was never revoked.
    """

    schema: Digest
    recipient: Account
    attester: Account
    attested_seconds: int
    expiration_seconds: int
    revocation_seconds: int


@dataclass(frozen=True, slots=True)
class EasGate:
    """An account counts in full if a listed attester has attested it, and not at all otherwise.

    Attributes:
        contract: the Ethereum Attestation Service.
        schema: uid of the schema that attestations must have.
        attesters: accounts whose attestations count, ascending.
        after_block: number of a block; attestations count that are younger than it.
    """

    contract: Account
    schema: Digest
    attesters: tuple[Account, ...]
    after_block: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.attesters) <= MAX_ATTESTERS:
            raise LocalProtocolError(f"a gate names 1 to {MAX_ATTESTERS} attesters")
        if any(first >= second for first, second in pairwise(self.attesters)):
            raise LocalProtocolError("the attesters of a gate ascend, and none is there twice")
        if not 0 <= self.after_block < 1 << 64:
            raise LocalProtocolError("the block of a gate is 0 to 2^64 - 1")

    def is_ours(self, attestation: Attestation) -> bool:
        """Whether an attestation has the gate's schema and one of its attesters, whatever its times."""
        return attestation.schema == self.schema and attestation.attester in self.attesters

    def accepts(self, attestation: Attestation, *, since_seconds: int, block_seconds: int) -> bool:
        """Whether an attestation counts in the state after a block.

        Args:
            since_seconds: timestamp of the block ``after_block``.
            block_seconds: timestamp of the block that is asked about.
        """
        is_made = since_seconds < attestation.attested_seconds <= block_seconds
        ends = (attestation.expiration_seconds, attestation.revocation_seconds)
        has_ended = any(0 < end <= block_seconds for end in ends)
        return is_made and not has_ended and self.is_ours(attestation)

    def units(self, attestations: int) -> Fraction:
        """Return the units of an account with a number of attestations: 0 with none, else 1."""
        return Fraction(min(1, attestations))

    def to_value(self) -> Value:
        """Return the gate inside an encoded manifest."""
        attesters: list[Value] = [bytes(attester) for attester in self.attesters]
        return {0: 2, 1: bytes(self.contract), 2: bytes(self.schema), 3: attesters, 4: self.after_block}


AskingGate = BondGate | EasGate
"""The gates that require something of every account."""

Gate = OpenGate | AskingGate


def points_cap(points_per_epoch: int, units: Fraction) -> int:
    """Return the most points that an account earns in an epoch: ``points_per_epoch`` times ``units``, rounded
    down.

    The caps of accounts that share one bond therefore never sum to more than that of one with all of it.
    """
    return int(points_per_epoch * units)
