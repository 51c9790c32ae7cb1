"""Health findings about tokens: the treasury that pays claims, and an auditor's own bond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.units import TOKEN

"""Smallest units of the token in a whole one."""


@dataclass(frozen=True, slots=True)
class TreasuryFacts:
    """The treasury's balance and the claims on it, in the token's smallest unit.

    Attributes:
        tokens: the distributor's balance.
        owed: granted in final epochs and not claimed yet, to all accounts together.
        tokens_per_point: price of a point; 0 in a swarm that pays no tokens.
        distributor: the contract that pays claims, to which tokens can be sent.
    """

    tokens: int
    owed: int
    tokens_per_point: int
    distributor: str


@dataclass(frozen=True, slots=True)
class AuditorBondFacts:
    """The bond of an auditor, in the token's smallest unit.

    Attributes:
        bonded: without tokens that are exiting.
        needed: less does not make a signature count.
    """

    account: str
    bonded: int
    needed: int


def assess_treasury(treasury: TreasuryFacts) -> Iterator[HealthFinding]:
    """Yield an error if no claim can be paid, and a warning if not all of them can."""
    point = treasury.tokens_per_point
    if not point or treasury.tokens >= max(point, treasury.owed):
        return
    held, owed = _tokens(treasury.tokens), _tokens(treasury.owed)
    if treasury.tokens < point:
        level = FindingLevel.ERROR
        text = f"the swarm's treasury holds {held}, and a point costs {_tokens(point)}: no claim can be paid"
    else:
        level = FindingLevel.WARNING
        text = (
            f"the swarm's treasury holds {held}, and {owed} are granted and not claimed: whoever claims last"
            " cannot be paid"
        )
    hint = (
        f"ask whoever runs the swarm to send tokens to {treasury.distributor}, which anyone may do; points"
        " stay granted: `sapo ledger claim` once it holds enough"
    )
    yield HealthFinding(FindingCode.TREASURY_EMPTY, level, text, hint)


def assess_auditor_bond(bond: AuditorBondFacts) -> Iterator[HealthFinding]:
    """Yield an error if an auditor's signatures do not count."""
    if bond.bonded >= bond.needed:
        return
    has = _tokens(bond.bonded) if bond.bonded else "no tokens"
    text = (
        f"auditor {bond.account} has {has} bonded, and {_tokens(bond.needed)} are required: its signatures do"
        " not count, so epochs may not become final"
    )
    hint = (
        f"`sapo ledger bond` bonds the missing {_tokens(bond.needed - bond.bonded)} of the account; if nobody"
        " has taken tokens out, see `sapo ledger status`: a proof against the auditor took them"
    )
    yield HealthFinding(FindingCode.AUDITOR_BOND, FindingLevel.ERROR, text, hint)


def _tokens(units: int) -> str:
    """Return an amount as exact decimal text with its unit."""
    whole, rest = divmod(units, TOKEN)
    amount = f"{whole}.{rest:018}".rstrip("0").rstrip(".")
    return f"{amount} {'token' if units == TOKEN else 'tokens'}"
