"""An auditor's accusations: with a bond gate, a proof of equivocation costs the account its bond."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.node.runtime.clock import Clock
from sapo_client.observe.events import EventLog
from sapo_protocol.epochs import present_epoch
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.gate import BondGate
from sapo_verification.admission.equivocations import ProofStore

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient

_LOOK_SECONDS: Final = 2.0

MAX_IN_EPOCH: Final = 16
"""Accusations that an auditor sends in an epoch, so that many small bonds do not use up its coins for
fees."""


class Accuser:
    """Service that accuses the accounts against which this auditor holds a proof.

    The contract cannot check the two Ed25519 signatures, so it burns a bond when a quorum of auditors has
    accused its account. Bonds too small for a point in an epoch are not accused.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        own: Account,
        auditors: Callable[[int], tuple[Account, ...]],
        ledger: LedgerClient,
        proofs: ProofStore,
        events: EventLog,
        clock: Clock,
    ) -> None:
        self._manifest = manifest
        self._own = own
        self._auditors = auditors
        self._ledger = ledger
        self._proofs = proofs
        self._events = events
        self._clock = clock
        self._accused_of: set[tuple[int, Account]] = set()
        self._without_effect: set[tuple[int, Account]] = set()
        self._epoch = -1
        self._accused = 0

    async def run(self) -> None:
        """Accuse until cancelled; may be run again after that. Returns at once without a bond gate."""
        while isinstance(self._manifest.gate, BondGate):
            await self.look()
            await trio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Accuse by every new proof; those beyond ``MAX_IN_EPOCH`` wait for the next epoch.

        An accusation without effect is tried again in the next one: this auditor's own bond may be too small
        for a time.
        """
        now = present_epoch(self._manifest, self._clock())
        if now != self._epoch:
            self._epoch, self._accused = now, 0
            self._without_effect.clear()
        held, begun = self._proofs.held(), self._epoch_on_chain()
        self._accused_of &= held.keys()
        tried = self._accused_of | self._without_effect
        for (epoch, account), proof in held.items():
            if (epoch, account) in tried or account == self._own:
                continue
            if epoch > begun:
                continue  # the contract's time is that of the last block
            if self._own not in self._auditors(epoch):
                continue  # the contract counts the auditors of that epoch
            if self._accused >= MAX_IN_EPOCH:
                return
            if not await self._ledger.accuse(account, epoch, proof):
                self._without_effect.add((epoch, account))
                continue
            self._accused_of.add((epoch, account))
            self._accused += 1
            self._events.write("accused", epoch=epoch, account=account, proof=proof)

    def _epoch_on_chain(self) -> int:
        """Return the present epoch by the chain's time."""
        manifest = self._manifest
        return present_epoch(manifest, self._clock() - manifest.finality_seconds)
