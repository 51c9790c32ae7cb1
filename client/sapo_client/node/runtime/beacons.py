"""The beacons that this node knows, derived from the swarm's chain or, without one, from the manifest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.observe.events import EventLog
from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Manifest

BlockHashBefore = Callable[[int], Awaitable[bytes]]
"""The hash of the last block that is older than a Unix time."""

_KEPT_EPOCHS: Final = 8
"""Rollouts of older epochs are no longer admitted."""

_RETRY_SECONDS: Final = 1.0


class Beacons:
    """Beacons by epoch; a swarm with a chain never falls back to those without one."""

    def __init__(self, manifest: Manifest, block_hash_before: BlockHashBefore, events: EventLog) -> None:
        self._manifest = manifest
        self._block_hash_before = block_hash_before
        self._events = events
        self._known: dict[int, Digest] = {}
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
        """Return the beacon of an epoch; wait while the chain is unreachable or has no block for it yet."""
        if (known := self.known(epoch)) is not None:
            return known
        async with self._lock:
            while epoch not in self._known:
                if (block_hash := await self._ask(epoch)) is None:
                    await trio.sleep(_RETRY_SECONDS)
                    continue
                self._known[epoch] = beacon(self._manifest.swarm_id, epoch, block_hash)
                self._events.write("epoch", epoch=epoch, beacon=self._known[epoch])
                for old in [known for known in self._known if known <= epoch - _KEPT_EPOCHS]:
                    del self._known[old]
            return self._known[epoch]

    async def _ask(self, epoch: int) -> bytes | None:
        start = epoch_start_seconds(self._manifest, epoch)
        try:
            block_hash = await self._block_hash_before(start - self._manifest.finality_seconds)
        except LedgerError as error:  # unreachable, behind, or asked slightly too early: all are temporary
            self._report(f"no beacon for epoch {epoch} yet: {error}")
            return None
        self._reported = None
        return block_hash

    def _report(self, text: str) -> None:
        """Report an error once, however long it lasts."""
        if text != self._reported:
            self._reported = text
            self._events.write("ledger_error", text=text)
