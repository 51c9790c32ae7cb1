"""Health findings about the chain: endpoints, blocks, settlement, and rounds that are not shared for want of
it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding, duration_text

CHAIN_SECONDS: Final = 60.0
"""The chain is reported as silent after this time: a busy endpoint misses a query or two."""

CLOCK_SECONDS: Final = 10.0
"""A larger difference to the chain's clock is reported; peers tolerate this much at an epoch's boundary."""

STALLED_SECONDS: Final = 300.0
"""Time without a block after which a chain that made them steadily is reported: public ones make one every
few seconds."""

PRIVATE_SECONDS: Final = 120.0
"""Rounds that are not shared are reported after this time: a start waits for the chain's second block."""

MAX_UNSETTLED: Final = 5
"""More ended epochs in a row of which none is final are reported; after two, an epoch cannot be settled any
more."""

_EXPLAIN_PRIVATE: Final = frozenset(
    {
        FindingCode.CHAIN_SILENT,
        FindingCode.WRONG_CHAIN,
        FindingCode.CLOCK_OFF,
        FindingCode.CLOCK_JUMPED,
        FindingCode.SIGNED_AHEAD,
        FindingCode.CHANGE_UNFOLLOWED,
        FindingCode.ISLANDS_UNKNOWN,
    }
)
"""Findings that say themselves why nothing is shared."""


@dataclass(frozen=True, slots=True)
class ChainFacts:
    """The chain, as seen through the RPC endpoints.

    Attributes:
        silent_seconds: since an endpoint last answered.
        trouble: why none answers.
        wrong: descriptions of the endpoints that serve another chain.
        usable: whether any endpoint serves the right chain.
        epoch_seconds: length of an epoch.
        clock_ahead_seconds: lead of this machine's clock over the chain's, negative if it is behind; none if
            unknown.
        stalled_seconds: since the last new block of a chain that made them steadily before; 0 for a chain
            that makes blocks only with transactions.
    """

    silent_seconds: float
    trouble: str | None
    wrong: tuple[str, ...]
    usable: bool
    epoch_seconds: int
    clock_ahead_seconds: float | None = None
    stalled_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SettlementFacts:
    """Epochs that have ended and are not final, although the chain was read.

    Attributes:
        epochs: their number since the last final one, or since the node's start.
        last: the last final epoch that this node has seen.
    """

    epochs: int
    last: int | None


@dataclass(frozen=True, slots=True)
class PrivateFacts:
    """Rounds that are not shared.

    Attributes:
        seconds: since they began.
        why: the missing information or block, if it is known.
    """

    seconds: float
    why: str | None


def assess_chain(chain: ChainFacts) -> Iterator[HealthFinding]:
    """Yield findings about endpoints and the machine's clock."""
    if chain.wrong:
        level = FindingLevel.WARNING if chain.usable else FindingLevel.ERROR
        hint = "name an endpoint of the manifest's chain with --rpc"
        yield HealthFinding(FindingCode.WRONG_CHAIN, level, "; ".join(chain.wrong), hint)
    if chain.usable and chain.trouble is not None and chain.silent_seconds >= CHAIN_SECONDS:
        level = FindingLevel.ERROR if chain.silent_seconds >= chain.epoch_seconds else FindingLevel.WARNING
        text = f"the chain has not answered for {duration_text(chain.silent_seconds)}: {chain.trouble}"
        hint = (
            "check the RPC endpoint, or name another one with --rpc; from the next epoch on this node trains"
            " alone until the chain is back, and nothing is shared or paid"
        )
        yield HealthFinding(FindingCode.CHAIN_SILENT, level, text, hint)
    elif chain.stalled_seconds >= STALLED_SECONDS:
        yield _stalled(chain)
    ahead = chain.clock_ahead_seconds
    if ahead is not None and abs(ahead) > CLOCK_SECONDS:
        side = "ahead of" if ahead > 0 else "behind"
        text = f"this machine's clock is at least {duration_text(abs(ahead))} {side} the chain's"
        hint = "set the clock, for example with NTP; if it is right, the RPC endpoint is behind its chain"
        yield HealthFinding(FindingCode.CLOCK_OFF, FindingLevel.ERROR, text, hint)


def _stalled(chain: ChainFacts) -> HealthFinding:
    level = FindingLevel.ERROR if chain.stalled_seconds >= chain.epoch_seconds else FindingLevel.WARNING
    text = (
        f"the RPC endpoint has shown no new block for {duration_text(chain.stalled_seconds)}, and showed one"
        " at every look before: it is behind its chain, or the chain has stopped"
    )
    hint = (
        "name another endpoint with --rpc; tasks of new epochs are derived from new blocks, so others may"
        " refuse what this node shares until then"
    )
    return HealthFinding(FindingCode.CHAIN_STALLED, level, text, hint)


def assess_settlement(settlement: SettlementFacts) -> Iterator[HealthFinding]:
    """Yield a warning if the auditors make no epoch final."""
    if settlement.epochs <= MAX_UNSETTLED:
        return
    last = "none before either" if settlement.last is None else f"the last final one is {settlement.last}"
    text = (
        f"none of the last {settlement.epochs} epochs has become final ({last}), so"
        " what was shared in them is not paid"
    )
    hint = (
        "nothing on this machine: the auditors make epochs final; if it goes on, ask whoever runs the swarm"
        " whether it has ended"
    )
    yield HealthFinding(FindingCode.NOT_SETTLED, FindingLevel.WARNING, text, hint)


def assess_private(private: PrivateFacts, found: Sequence[HealthFinding]) -> Iterator[HealthFinding]:
    """Yield an error if rounds are not shared and no other finding says why.

    Args:
        found: all other findings.
    """
    if private.seconds < PRIVATE_SECONDS or any(finding.code in _EXPLAIN_PRIVATE for finding in found):
        return
    why = private.why or "the chain has not confirmed this machine's clock yet"
    since = duration_text(private.seconds)
    text = f"this node has trained alone for {since}, and nothing is shared or paid: {why}"
    hint = "it returns to the swarm automatically; if it does not, name another RPC endpoint with --rpc"
    yield HealthFinding(FindingCode.NOT_SHARING, FindingLevel.ERROR, text, hint)
