"""The gate of a new swarm: a bond or an attestation that every account needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapo_client.errors import ExitCode, SapoError
from sapo_client.units import TOKEN
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import BOND_EPOCHS
from sapo_protocol.terms.gate import BondGate, EasGate


@dataclass(frozen=True, slots=True)
class EasTerms:
    """The attestation that a founder requires.

    Attributes:
        contract: the chain's Ethereum Attestation Service.
        attesters: ascending.
    """

    contract: Account
    schema: Digest
    attesters: tuple[Account, ...]

    def gate(self, after_block: int) -> EasGate:
        """Return the manifest's gate for attestations that are younger than a block."""
        return EasGate(self.contract, self.schema, self.attesters, after_block)


def eas_terms(contract: Account | None, schema: str | None, attesters: Sequence[Account]) -> EasTerms | None:
    """Return the attestation that a founder requires, or none if no option for it is given.

    Raises:
        SapoError: a part is missing, or is out of its bounds.
    """
    if contract is None and schema is None and not attesters:
        return None
    if contract is None or schema is None:
        raise _bad_attestation("--eas, --schema and at least one --attester come together")
    try:
        terms = EasTerms(contract, Digest.from_hex(schema), tuple(sorted(set(attesters))))
        terms.gate(after_block=0)
    except LocalProtocolError as error:
        raise _bad_attestation(str(error)) from error
    return terms


def _bad_attestation(text: str) -> SapoError:
    return SapoError(
        text,
        hint="name the service's address, the schema's uid (0x and 64 digits), and whose attestations count",
        exit_code=ExitCode.USAGE,
    )


def account_exit_seconds(epoch_seconds: int, finality_seconds: int) -> int:
    """Return the shortest exit delay of an account's bond in which proofs can still reach it, in seconds."""
    return finality_seconds + BOND_EPOCHS * epoch_seconds


def gate_of(contract: Account | None, tokens: float | None, exit_seconds: int | None) -> BondGate | None:
    """Return the manifest's gate over a deployed contract, or none if no bond is required.

    Args:
        tokens: the bond with which an account counts in full.

    Raises:
        SapoError: the number of tokens is out of its bounds.
    """
    if contract is None or tokens is None or exit_seconds is None:
        return None
    return BondGate(contract, unit_of(tokens), exit_seconds)


def unit_of(tokens: float) -> int:
    """Return a number of tokens in the token's smallest part.

    Raises:
        SapoError: the number of tokens is out of its bounds.
    """
    try:
        return BondGate(Account(bytes(Account.SIZE)), round(tokens * TOKEN), 0).unit
    except (LocalProtocolError, OverflowError, ValueError) as error:
        raise SapoError(
            f"a bond of {tokens:g} tokens cannot be asked for",
            hint="choose --bond between 0.001 and a billion tokens; the faucet gives 100 a day",
            exit_code=ExitCode.USAGE,
        ) from error
