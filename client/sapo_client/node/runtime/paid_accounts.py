"""The numbers of paid accounts in final epochs, from which the number of islands is derived.

The final epochs and the digests of their proposals are read from the chain; peers send the proposals.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import trio

from sapo_client.ledger.errors import LedgerError
from sapo_client.node.runtime.offload import offload
from sapo_client.observe.events import EventLog
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.count import counted_epochs, first_counted
from sapo_protocol.settlement import grace_seconds
from sapo_verification.bounded_cache import BoundedCache
from sapo_verification.engine import Engine

FinalRootsBefore = Callable[[int, int], Awaitable[Sequence[EpochRoot]]]
"""Returns the roots that are final in the last block older than a Unix time, ascending: those from an epoch
on, and the last one before that epoch."""

_KEPT_EPOCHS: Final = 64

_BEFORE_ANY_FINAL: Final = 2
"""First epochs, before which no epoch can be final; for these the chain is not read, so that nodes can
connect before genesis."""


class PaidAccounts:
    """Provides the engine's islands with the numbers of paid accounts, as soon as they are known for an
    epoch.

    It does nothing in a swarm with a constant number of islands.

    Args:
        ask: asks the peers for their contributions again.
    """

    def __init__(
        self,
        engine: Engine,
        final_roots_before: FinalRootsBefore,
        *,
        ask: Callable[[], None],
        events: EventLog,
    ) -> None:
        self._manifest = engine.manifest
        self._islands = engine.islands
        self._contributions = engine.contributions
        self._final_roots_before = final_roots_before
        self._ask_peers = ask
        self._events = events
        self._roots: dict[int, tuple[EpochRoot, ...]] = {}
        self._paid = BoundedCache[ContentId, int](_KEPT_EPOCHS)
        self._asked_seconds = -math.inf
        self._reported: str | None = None

    async def learn(self, epochs: Iterable[int]) -> None:
        """Obtain the unknown numbers of these epochs, as far as possible now; the caller tries again for the
        rest.

        The newest epoch comes first; for older ones the needed block may be older than the chain.
        """
        for epoch in sorted(epochs, reverse=True):
            if self._islands.knows(epoch):
                continue
            if (roots := await self._counted_roots(epoch)) is None:
                return  # the chain is unreachable
            paid = [await self._paid_in(root) for root in roots]
            known = [accounts for accounts in paid if accounts is not None]
            if len(known) < len(paid):
                self._report(f"no number of islands for epoch {epoch} yet: requesting proposals from peers")
                self._ask()
                continue
            before = self._islands.count(epoch - 1)
            self._reported = None
            self._islands.learn(epoch, known)
            if (count := self._islands.count(epoch)) != before:
                self._events.write("islands", epoch=epoch, count=count, paid=known)

    async def _counted_roots(self, epoch: int) -> tuple[EpochRoot, ...] | None:
        """Return the roots of the counted epochs, oldest first; None while the chain is unreachable.

        The first answer is kept, even if an epoch is recalled later.
        """
        if epoch <= _BEFORE_ANY_FINAL:
            return ()
        if epoch not in self._roots:
            start = epoch_start_seconds(self._manifest, max(epoch, 1) - 1)
            try:
                shown = await self._final_roots_before(
                    start - self._manifest.finality_seconds, first_counted(epoch)
                )
            except LedgerError as error:  # unreachable, behind, in disagreement: temporary
                self._report(f"no number of islands for epoch {epoch} yet: {error}")
                return None
            counted = counted_epochs([root.epoch for root in shown], epoch)
            self._roots[epoch] = tuple(root for root in shown if root.epoch in counted)
            self._roots = {one: kept for one, kept in self._roots.items() if one > epoch - _KEPT_EPOCHS}
        return self._roots[epoch]

    async def _paid_in(self, root: EpochRoot) -> int | None:
        """Return how many accounts have points in a final epoch; None while its proposal is missing."""
        name = ContentId(root.archive_digest)
        if name not in self._paid:
            self._contributions.note_earlier_final(root.epoch, name)
            # a proposal may name a hundred thousand accounts
            if (accounts := await offload(self._contributions.counting_paid(name))) is None:
                return None
            self._paid[name] = accounts
        return self._paid[name]

    def _ask(self) -> None:
        """Ask the peers for the missing proposals, with pauses."""
        now = trio.current_time()
        if now >= self._asked_seconds + grace_seconds(self._manifest):
            self._asked_seconds = now
            self._ask_peers()

    def _report(self, text: str) -> None:
        """Report an error once, however long it lasts."""
        if text != self._reported:
            self._reported = text
            self._events.write("ledger_error", text=text)
