"""The tokens that a node's pay rests on: the swarm's treasury, and the bond of an auditor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.runtime.context import NodeContext
from sapo_client.observe.assessments.funds import AuditorBondFacts, TreasuryFacts
from sapo_protocol.epochs import epoch_at
from sapo_protocol.terms.auditors import Auditors

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient

LOOK_SECONDS: Final = 120.0
"""Interval of reading; a treasury and a bond change seldom, and public endpoints limit the requests."""


class FundsWatch:
    """Service that reads the treasury, and of an auditor its bond.

    What cannot be read stays as it was last seen: other findings say that the chain is away.

    Args:
        auditors: returns who is an auditor in which epoch, as far as the node knows.
    """

    def __init__(
        self, context: NodeContext, chain: LedgerClient | NoChain, auditors: Callable[[], Auditors]
    ) -> None:
        self._context = context
        self._chain = chain
        self._auditors = auditors
        self._treasury: TreasuryFacts | None = None
        self._bond: AuditorBondFacts | None = None

    async def run(self) -> None:
        """Read until cancelled; may be run again after that. Returns at once without a ledger."""
        chain = self._chain
        while not isinstance(chain, NoChain) and self._context.config.ledger.enabled:
            with suppress(LedgerError):  # the health watch reports a chain that does not answer
                await self._look(chain)
            await trio.sleep(LOOK_SECONDS)

    def treasury(self) -> TreasuryFacts | None:
        """Return the facts on the treasury; None before they were read."""
        return self._treasury

    def auditor_bond(self) -> AuditorBondFacts | None:
        """Return the facts on this auditor's bond; None of a node that does not audit."""
        return self._bond if self._audits() else None

    async def _look(self, chain: LedgerClient) -> None:
        found, contracts = await chain.treasury(), await chain.contracts()
        self._treasury = TreasuryFacts(
            found.tokens, found.owed, found.tokens_per_point, str(contracts.distributor)
        )
        if self._audits():
            stake, needed = await chain.stake(), await chain.auditor_bond()
            self._bond = AuditorBondFacts(str(self._context.author.account), stake.bonded, needed)

    def _audits(self) -> bool:
        """Whether this node signs for an epoch that is being settled, or for the present or the next one."""
        context = self._context
        if not context.config.ledger.audit:
            return False
        now = max(context.clock(), context.manifest.genesis_seconds)
        current = epoch_at(context.manifest, now)
        return context.author.account in self._auditors().within(max(0, current - 1), current + 1)
