"""What a node looks at again and again: floods, the ledger's queue, what its peers are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.auditing.chain import ChainRole
from sapo_client.node.gossip.ratings import Ratings
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.epochs import epoch_at
from sapo_protocol.manifest import Manifest

_LOOK_SECONDS: Final = 1.0

_LOOKS_PER_RATING: Final = 10
"""Evidence changes with audits, a few a second at most; a peer's rating can wait."""


@dataclass(frozen=True, slots=True)
class MetricsPoller:
    """Turns what the rooms count into metrics and counted refusals, and reputation into peer scores."""

    manifest: Manifest
    transport: Transport
    chain: ChainRole
    ratings: Ratings
    telemetry: Telemetry
    clock: Clock

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            self.rate_peers()
            for _ in range(_LOOKS_PER_RATING):
                self.look()
                await trio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Writes down what was counted since the last look."""
        status = self.chain.status()
        self.telemetry.metrics.ledger(outbox=status.pending, last_receipt_seconds=status.last_receipt_seconds)
        for kind, count in self.chain.take_errors().items():
            self.telemetry.metrics.ledger_errors(kind, count)
        for forwarder, count in sorted(self.transport.take_floods().items()):
            self.telemetry.flooded(forwarder, count)

    def rate_peers(self) -> None:
        """Tells the transport what connected peers are worth."""
        epoch = epoch_at(self.manifest, max(self.clock(), self.manifest.genesis_seconds))
        peer_ids = [peer.peer_id for peer in self.transport.peers()]
        self.transport.rate(self.ratings.of(peer_ids, epoch))
