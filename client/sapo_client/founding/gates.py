"""The gate of a swarm whose founder asks for a bond of every account."""

from __future__ import annotations

from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import BOND_EPOCHS
from sapo_protocol.terms.gate import BondGate

_TOKEN: Final = 10**18


def account_exit_seconds(epoch_seconds: int, finality_seconds: int) -> int:
    """Return the shortest time that an account's bond may stay within reach of proofs, in seconds."""
    return finality_seconds + BOND_EPOCHS * epoch_seconds


def gate_of(contract: Account | None, tokens: float | None, exit_seconds: int | None) -> BondGate | None:
    """Return the manifest's gate over a deployed contract, or none where no bond is asked for.

    Args:
        tokens: that count in full.

    Raises:
        SapoError: so many tokens cannot be asked for.
    """
    if contract is None or tokens is None or exit_seconds is None:
        return None
    return BondGate(contract, unit_of(tokens), exit_seconds)


def unit_of(tokens: float) -> int:
    """Return a number of tokens in the token's smallest part.

    Raises:
        SapoError: so many tokens cannot be asked for.
    """
    try:
        return BondGate(Account(bytes(Account.SIZE)), round(tokens * _TOKEN), 0).unit
    except (LocalProtocolError, OverflowError, ValueError) as error:
        raise SapoError(
            f"a bond of {tokens:g} tokens cannot be asked for",
            hint="choose --bond between 0.001 and a billion tokens; the faucet gives 100 a day",
            exit_code=ExitCode.USAGE,
        ) from error
