"""The accounts' bonds or attestations of each epoch, read from the chain if the gate requires them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.runtime.clock import Clock
from sapo_client.observe.events import EventLog
from sapo_client.observe.health import BondFacts
from sapo_protocol.epochs import epoch_at, epoch_start_seconds, present_epoch
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.gate import EasGate
from sapo_verification.standing import Standing

BondsBefore = Callable[[int], Awaitable[Mapping[Account, int]]]
"""Returns each account's effective bond in the last block older than a Unix time."""

_LOOK_SECONDS: Final = 1.0

_MAX_PAUSE_SECONDS: Final = 30.0
"""Longest pause between attempts to read bonds: the search for a block takes some twenty RPC requests."""


class BondReader:
    """Service that reads the bonds of an epoch as soon as the chain has them.

    It is independent of the beacons: a node that cannot read bonds continues to train with those of the last
    epoch that it could read; its tallies wait.

    Args:
        standing: receives the bonds.
        own: this node's account.
    """

    def __init__(
        self,
        standing: Standing,
        *,
        manifest: Manifest,
        own: Account,
        bonds_before: BondsBefore,
        clock: Clock,
        events: EventLog,
    ) -> None:
        self._manifest = manifest
        self._own = own
        gate = manifest.gate
        self._attesters = tuple(map(str, gate.attesters)) if isinstance(gate, EasGate) else ()
        self._standing = standing
        self._bonds_before = bonds_before
        self._clock = clock
        self._events = events
        self._trouble: str | None = None
        self._unread_since = 0.0

    async def run(self) -> None:
        """Read bonds until cancelled; may be run again after that. Returns at once without a gate."""
        pause_seconds = _LOOK_SECONDS
        while self._standing.has_gate:
            read = await self.look()
            pause_seconds = _LOOK_SECONDS if read else min(2 * pause_seconds, _MAX_PAUSE_SECONDS)
            await trio.sleep(pause_seconds)

    async def look(self) -> bool:
        """Read the unknown bonds of the present epoch and the one before; return whether both are known.

        Those of the previous epoch are needed for its tally; in a young swarm that epoch may be older than
        the chain.
        """
        if (now_seconds := self._clock()) < self._manifest.genesis_seconds:
            return True
        current = epoch_at(self._manifest, now_seconds)
        trouble = await self._learn(current)
        self._note(current, trouble)
        before = None if current == 0 or trouble else await self._learn(current - 1)
        return trouble is None and before is None

    async def _learn(self, epoch: int) -> str | None:
        """Read the bonds of an epoch unless they are known; return the reason if it is impossible now."""
        if self._standing.is_known(epoch):
            return None
        before = epoch_start_seconds(self._manifest, epoch) - self._manifest.finality_seconds
        try:
            bonded = await self._bonds_before(before)
        except LedgerError as error:  # unreachable, behind, or incomplete: all of these are temporary
            return str(error)
        self._standing.learn(epoch, bonded)
        self._events.write("bonds", epoch=epoch, accounts=len(bonded))
        return None

    def facts(self) -> BondFacts | None:
        """Return the facts on the bonds for the health report; None without a gate."""
        if not self._standing.has_gate:
            return None
        current = present_epoch(self._manifest, self._clock())
        part = (
            float(self._standing.units_of(self._own, current)) if self._standing.is_known(current) else None
        )
        unread = None if self._trouble is None else trio.current_time() - self._unread_since
        return BondFacts(str(self._own), part, unread, self._trouble, self._attesters)

    def _note(self, epoch: int, trouble: str | None) -> None:
        """Record and report, once, the reason why the present epoch's bonds cannot be read."""
        if trouble is not None and self._trouble is None:
            self._unread_since = trio.current_time()
        if trouble not in (None, self._trouble):
            self._events.write(
                "ledger_error",
                text=f"no bonds or attestations for epoch {epoch} yet: {trouble}",
            )
        self._trouble = trouble
