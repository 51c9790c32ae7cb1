"""This node's key on the chain: claimed for its account when the node starts, and again before that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.node.gossip.own_certificate import CERTIFICATE_SECONDS
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.statements import Signer, Words, registration_words
from sapo_protocol.identifiers import NodeId
from sapo_protocol.manifest import Manifest

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient
    from sapo_client.observe.events import EventLog

_MARGIN_SECONDS: Final = CERTIFICATE_SECONDS // 2
"""Renewed this long before its end: a chain that is away for days, or dear for days, costs nothing."""

_LOOK_SECONDS: Final = 600.0


def end_of_new(now_seconds: float) -> int:
    """Until when a claim that is made now counts, in Unix seconds."""
    return int(now_seconds) + CERTIFICATE_SECONDS


def is_fresh(until_seconds: int, now_seconds: float) -> bool:
    """Whether a claim that ends at a moment needs no renewal yet."""
    return until_seconds - now_seconds > _MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class Registration:
    """Keeps the claim on the node key alive.

    Args:
        show: takes the transaction that is about to be signed, for the node's owner to see.
    """

    manifest: Manifest
    signer: Signer
    node: NodeId
    ledger: LedgerClient
    events: EventLog
    clock: Clock
    show: Callable[[Words], None]

    async def run(self) -> None:
        """Looks from time to time until cancelled; may be run again after that."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Queues a claim where there is none that lasts."""
        now = self.clock()
        if is_fresh(await self.ledger.registered_until(self.node), now):
            return
        if await self.ledger.pending("register"):
            return  # what was queued before, perhaps by a run that ended, is as good
        not_after = end_of_new(now)
        self.show(registration_words(self.signer, self.manifest, self.node, not_after))
        await self.ledger.register(self.node, not_after)
        self.events.write("registration", node=self.node, not_after=not_after)
