"""A node's services on its swarm's ledger (sending, registration, settlement), and their null object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from sapo_client.node.auditing.auditor import AuditorRole
from sapo_client.node.auditing.faucet import FaucetRequest
from sapo_client.node.auditing.registration import Registration
from sapo_client.node.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient


class LedgerRole(Protocol):
    """A node's part in its swarm's ledger."""

    @property
    def points(self) -> int:
        """Points of this account as of the last final epoch."""

    async def run(self, supervisor: Supervisor) -> None:
        """Take part until cancelled."""


class NoLedger:
    """The null object for a swarm without a chain, or for a node that does not write to it."""

    points = 0

    async def run(self, supervisor: Supervisor) -> None:
        """Return at once."""


class LedgerServices:
    """Services that send queued transactions, keep the node's key registered, and follow settlement."""

    def __init__(
        self,
        *,
        ledger: LedgerClient,
        registration: Registration,
        auditor: AuditorRole,
        faucet: FaucetRequest | None = None,
    ) -> None:
        self._ledger = ledger
        self._registration = registration
        self._auditor = auditor
        self._faucet = faucet

    @property
    def points(self) -> int:
        """Points of this account as of the last final epoch."""
        return self._auditor.points

    async def run(self, supervisor: Supervisor) -> None:
        """Keep the services running until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._faucet is not None:
                nursery.start_soon(supervisor.keep, "faucet", self._faucet.run)
            nursery.start_soon(supervisor.keep, "ledger", self._send)
            nursery.start_soon(supervisor.keep, "registration", self._registration.run)
            nursery.start_soon(supervisor.keep, "auditor", self._auditor.run)

    async def _send(self) -> None:
        """Check that chain and manifest agree, register, then send queued transactions."""
        await self._ledger.check()
        await self._registration.look()
        await self._ledger.run()
