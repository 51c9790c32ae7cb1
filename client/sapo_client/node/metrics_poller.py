"""Periodic updates: metrics of floods and the ledger's queue, ratings of peers and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.node.auditing.chain import ChainRole
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.quotas import HeardQuotas
from sapo_client.node.gossip.ratings import Ratings
from sapo_client.node.gossip.record_directory import RecordDirectory
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.swarm.transport import Transport
from sapo_protocol.epochs import present_epoch
from sapo_protocol.manifest import Manifest
from sapo_verification.engine import Engine

_LOOK_SECONDS: Final = 1.0

_LOOKS_PER_RATING: Final = 10
"""Polls per update of the ratings, which change only with audits, a few per second at most."""


@dataclass(frozen=True, slots=True)
class MetricsPoller:
    """Service that exports counts of a node's parts as metrics, and updates the transport's view of
    accounts."""

    manifest: Manifest
    transport: Transport
    chain: ChainRole
    ratings: Ratings
    engine: Engine
    records: RecordDirectory
    telemetry: Telemetry
    clock: Clock

    async def run(self) -> None:
        """Poll until cancelled."""
        last = None
        quotas = HeardQuotas(self.engine, self.transport, self.clock)
        while True:
            self.rate_peers()
            if last != (now := self._vouched_rests_on()):
                last = now
                await self.vouch()
            for _ in range(_LOOKS_PER_RATING):
                self.look()
                quotas.look()
                await trio.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Report the counts since the last call."""
        status = self.chain.status()
        self.telemetry.metrics.ledger(outbox=status.pending, last_receipt_seconds=status.last_receipt_seconds)
        for kind, count in self.chain.take_errors().items():
            self.telemetry.metrics.ledger_errors(kind, count)
        for forwarder, count in sorted(self.transport.take_floods().items()):
            self.telemetry.flooded(forwarder, count)
        self.telemetry.refusal_events.look()

    def rate_peers(self) -> None:
        """Give the transport the ratings of connected peers."""
        peer_ids = [peer.peer_id for peer in self.transport.peers()]
        self.transport.rate(self.ratings.of(peer_ids, self._epoch()))

    async def vouch(self) -> None:
        """Give the transport the peers that are vouched for."""
        vouched = await self.ratings.vouched(self._epoch(), self.records.pairs())
        self.transport.vouch(vouched.earned, vouched.bonded)

    def _vouched_rests_on(self) -> tuple[int, bool, int, int]:
        """Return a value that changes when the vouched peers have to be computed again, as when bonds were
        read.

        An account that earns a weight within an epoch is vouched for from the next one on.
        """
        epoch, engine = self._epoch(), self.engine
        known = len(engine.certificates.pairs())
        return epoch, engine.standing.is_known(epoch), known, len(self.records)

    def _epoch(self) -> int:
        return present_epoch(self.manifest, self.clock())


def open_metrics_poller(
    context: NodeContext, engine: Engine, gossip: GossipHandlers, chain: ChainRole
) -> MetricsPoller:
    """Return the poller of a node's parts, not running yet."""
    return MetricsPoller(
        manifest=context.manifest,
        transport=context.transport,
        chain=chain,
        ratings=Ratings(engine.certificates, engine.reputation),
        engine=engine,
        records=gossip.records.directory,
        telemetry=context.telemetry,
        clock=context.clock,
    )
