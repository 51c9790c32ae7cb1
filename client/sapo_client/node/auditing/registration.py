"""Registration of this node's key on the chain: claimed at start, and again before the claim ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.node.gossip.own_certificate import CERTIFICATE_SECONDS
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.statements import SignedFields, Signer, describe_registration
from sapo_protocol.identifiers import NodeId
from sapo_protocol.manifest import Manifest

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient
    from sapo_client.observe.events import EventLog

_MARGIN_SECONDS: Final = CERTIFICATE_SECONDS // 2
"""A claim is renewed this long before its end, so that some days without the chain do no harm."""

_LOOK_SECONDS: Final = 600.0


def end_of_new(now_seconds: float) -> int:
    """Return the end of a claim that is made now, in Unix seconds."""
    return int(now_seconds) + CERTIFICATE_SECONDS


def is_fresh(until_seconds: int, now_seconds: float) -> bool:
    """Whether a claim that ends at a time needs no renewal yet."""
    return until_seconds - now_seconds > _MARGIN_SECONDS


@dataclass(frozen=True, slots=True)
class Registration:
    """Service that keeps the claim on the node key valid.

    Args:
        show: called with the transaction that is about to be signed, to show it to the node's owner.
    """

    manifest: Manifest
    signer: Signer
    node: NodeId
    ledger: LedgerClient
    events: EventLog
    clock: Clock
    show: Callable[[SignedFields], None]

    async def run(self) -> None:
        """Renew the claim when necessary until cancelled; may be run again after that."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Queue a claim unless there is one that needs no renewal."""
        now = self.clock()
        if is_fresh(await self.ledger.registered_until(self.node), now):
            return
        if await self.ledger.pending("register"):
            return  # also one that was queued before, perhaps by an earlier run
        not_after = end_of_new(now)
        self.show(describe_registration(self.signer, self.manifest, self.node, not_after))
        await self.ledger.register(self.node, not_after)
        self.events.write("registration", node=self.node, not_after=not_after)
