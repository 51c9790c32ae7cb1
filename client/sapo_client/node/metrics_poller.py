"""Regular polling of floods, the ledger's queue, and the ratings of peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.auditing.chain import ChainRole
from sapo_client.node.gossip.ratings import Ratings
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.epochs import epoch_at
from sapo_protocol.manifest import Manifest
from sapo_verification.engine import Engine

_LOOK_SECONDS: Final = 1.0

_LOOKS_PER_RATING: Final = 10
"""Ratings follow from audits, of which there are a few a second at most, so they can be rarer."""


@dataclass(frozen=True, slots=True)
class MetricsPoller:
    """Service that turns counts of a node's parts into metrics, and reputation into peer scores."""

    manifest: Manifest
    transport: Transport
    chain: ChainRole
    ratings: Ratings
    telemetry: Telemetry
    clock: Clock

    async def run(self) -> None:
        """Poll until cancelled."""
        vouched_epoch = -1
        while True:
            self.rate_peers()
            if vouched_epoch != self._epoch():
                vouched_epoch = self._epoch()
                self.transport.vouch(self.ratings.vouched(vouched_epoch))
            for _ in range(_LOOKS_PER_RATING):
                self.look()
                await trio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Report the counts since the last call."""
        status = self.chain.status()
        self.telemetry.metrics.ledger(outbox=status.pending, last_receipt_seconds=status.last_receipt_seconds)
        for kind, count in self.chain.take_errors().items():
            self.telemetry.metrics.ledger_errors(kind, count)
        for forwarder, count in sorted(self.transport.take_floods().items()):
            self.telemetry.flooded(forwarder, count)

    def rate_peers(self) -> None:
        """Give the transport the ratings of connected peers."""
        peer_ids = [peer.peer_id for peer in self.transport.peers()]
        self.transport.rate(self.ratings.of(peer_ids, self._epoch()))

    def _epoch(self) -> int:
        return epoch_at(self.manifest, max(self.clock(), self.manifest.genesis_seconds))


def open_metrics_poller(context: NodeContext, engine: Engine, chain: ChainRole) -> MetricsPoller:
    """Return the poller of a node's parts, not running yet."""
    return MetricsPoller(
        manifest=context.manifest,
        transport=context.transport,
        chain=chain,
        ratings=Ratings(engine.certificates, engine.reputation),
        telemetry=context.telemetry,
        clock=context.clock,
    )
