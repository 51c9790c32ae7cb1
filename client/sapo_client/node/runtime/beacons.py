"""The beacons that this node knows, derived from the swarm's chain or, without one, from the manifest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.runtime.records import Records, no_archive, no_final_root
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import PROOF_EPOCHS
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Manifest

BlockHashBefore = Callable[[int], Awaitable[bytes]]
"""Returns the hash of the last block that is older than a Unix time."""

_KEPT_EPOCHS: Final = 8
"""Epochs whose beacons are kept; rollouts of older epochs are no longer admitted."""

_PROVED_EPOCHS: Final = PROOF_EPOCHS + 2
"""The same in a swarm with islands, where homes are needed for all epochs of which proofs are accepted."""

_RETRY_SECONDS: Final = 1.0


class BeaconChain(Protocol):
    """The functions of a chain that beacons and records need."""

    async def block_hash_before(self, timestamp_seconds: int) -> bytes:
        """Return the hash of the last block before a moment in the past."""

    async def final_root_before(self, timestamp_seconds: int) -> EpochRoot | None:
        """Return the root of the last epoch that is final in that block, if there is one."""


def open_beacons(manifest: Manifest, chain: BeaconChain, events: EventLog) -> Beacons:
    """Return the beacons of a swarm, with its records, whose ``archive`` has to be set later."""
    records = Records(manifest, chain.final_root_before, no_archive)
    return Beacons(manifest, chain.block_hash_before, events, records)


class Beacons:
    """Beacons by epoch; a swarm with a chain never uses beacons that are derived without it.

    Args:
        records: the records in force, obtained together with the beacons; needed with ladders.

    Attributes:
        holds_terms: whether this node knows the terms in force in an epoch; may be set later.
    """

    def __init__(
        self,
        manifest: Manifest,
        block_hash_before: BlockHashBefore,
        events: EventLog,
        records: Records | None = None,
    ) -> None:
        self.holds_terms: Callable[[int], bool] = lambda _epoch: True
        self.records: Final = records or Records(manifest, no_final_root, no_archive)
        self._manifest = manifest
        self._block_hash_before = block_hash_before
        self._events = events
        self._known: dict[int, Digest] = {}
        self._begun: set[int] = set()
        """Epochs that were written as events: those whose beacon was obtained, not only recalled."""
        self._recalled: int | None = None
        self._kept = _KEPT_EPOCHS
        if manifest.islands is not None:
            self._kept = manifest.islands.period_epochs + _PROVED_EPOCHS
        self._lock = trio.Lock()
        self._reported: str | None = None

    def known(self, epoch: int) -> Digest | None:
        """Return the beacon of an epoch, or None if it was not obtained yet."""
        return self._known.get(epoch)

    @property
    def newest(self) -> tuple[int, Digest] | None:
        """The last epoch whose beacon is known, and that beacon."""
        return max(self._known.items(), default=None)

    async def obtain(self, epoch: int) -> Digest:
        """Return the beacon of an epoch once it and the record in force are known.

        Waits while the chain is unreachable or has no block for it yet, and while the record's proposal is
        requested.
        """
        known = self.known(epoch)
        is_begun = epoch in self._begun and self.holds_terms(epoch)
        if known is not None and is_begun and self.records.known(epoch) is not None:
            return known
        async with self._lock:
            while epoch not in self._known:
                if (block_hash := await self._ask(epoch)) is None:
                    await trio.sleep(_RETRY_SECONDS)
                    continue
                self._known[epoch] = beacon(self._manifest.swarm_id, epoch, block_hash)
            self._note_begun(epoch)
            while not self.holds_terms(epoch):
                self._report(f"no terms for epoch {epoch} yet: reading the ledger's announcements")
                await trio.sleep(_RETRY_SECONDS)
            while self.records.known(epoch) is None:
                self._report(f"no record for epoch {epoch} yet: requesting its proposal from peers")
                await trio.sleep(_RETRY_SECONDS)
            return self._known[epoch]

    def _note_begun(self, epoch: int) -> None:
        """Write the event of an epoch once, and drop what is too old in it."""
        if epoch in self._begun:
            return
        self._begun.add(epoch)
        self._events.write("epoch", epoch=epoch, beacon=self._known[epoch])
        self._begun = {begun for begun in self._begun if begun > epoch - self._kept}
        for old in [known for known in self._known if known <= epoch - self._kept]:
            del self._known[old]

    async def recall(self, epoch: int) -> None:
        """Obtain the beacons of earlier epochs that determine the islands of an epoch, newest first.

        No events are written for them; ``obtain`` does this when an epoch begins.
        """
        if self._recalled == epoch:
            return
        needed = range(epoch - 1, max(-1, epoch - self._kept), -1)
        for before in needed:
            if before in self._known:
                continue
            if (block_hash := await self._ask(before)) is None:
                return  # the chain is unreachable: the caller tries again
            self._known[before] = beacon(self._manifest.swarm_id, before, block_hash)
        self._recalled = epoch

    async def _ask(self, epoch: int) -> bytes | None:
        start = epoch_start_seconds(self._manifest, epoch)
        try:
            before = start - self._manifest.finality_seconds
            block_hash = await self._block_hash_before(before)
            await self.records.learn(epoch, before)
        except LedgerError as error:  # unreachable, behind, or asked too early: temporary
            self._report(f"no beacon for epoch {epoch} yet: {error}")
            return None
        self._reported = None
        return block_hash

    def _report(self, text: str) -> None:
        """Report an error once, however long it lasts."""
        if text != self._reported:
            self._reported = text
            self._events.write("ledger_error", text=text)
