"""The reports that the node serves through its control API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from sapo_client.learner.backend import Backend
from sapo_client.node.auditing.chain import ChainRole
from sapo_client.node.auditing.settlement_services import LedgerRole
from sapo_client.node.health import HealthWatch
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.shutdown import Shutdown
from sapo_client.node.training.rounds import Rounds
from sapo_client.observe.plain import JSON
from sapo_client.observe.reports import (
    EndpointReport,
    LedgerReport,
    PeerReport,
    PeersReport,
    RolloutsReport,
    StatusReport,
)
from sapo_client.swarm.peer_id import key_from_peer_id
from sapo_client.swarm.transport import PeerInfo
from sapo_protocol.identifiers import NodeId
from sapo_verification.engine import Engine


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of a node, made on request from its running parts."""

    context: NodeContext
    engine: Engine
    rounds: Rounds
    learner: Backend
    chain: ChainRole
    ledger: LedgerRole
    shutdown: Shutdown
    health: HealthWatch
    started_seconds: float

    def status(self) -> StatusReport:
        """Return the state of the node."""
        context, telemetry, rounds = self.context, self.context.telemetry, self.rounds
        return StatusReport(
            state="draining" if self.shutdown.draining.is_set() else "running",
            updated=_iso(context.clock()),
            version=version("sapo-swarm"),
            swarm_name=context.manifest.name,
            swarm_id=context.manifest.swarm_id.hex(),
            node_id=context.author.node.hex(),
            peer_id=context.transport.peer_id,
            account=str(context.author.account),
            addresses=context.transport.addresses,
            model=context.config.learner.model,
            device=context.config.learner.device,
            uptime_seconds=round(context.clock() - self.started_seconds, 1),
            epoch=self._epoch(),
            round=rounds.round,
            step=self.learner.step,
            reward=rounds.last_reward,
            reward_start=rounds.first_reward,
            pool=len(self.engine.pool),
            peers=len(context.transport.peers()),
            shared=telemetry.shared,
            accepted=telemetry.accepted,
            sampled_own=telemetry.sampled_own,
            sampled_external=telemetry.sampled_external,
            refused={str(reason): count for reason, count in sorted(telemetry.refusals.items())},
            ledger=self._ledger(),
            findings=self.health.findings,
        )

    def peers(self) -> PeersReport:
        """Return the connected peers with their scores and reputation."""
        return PeersReport(peers=tuple(self._peer(info) for info in self.context.transport.peers()))

    def rollouts(self) -> RolloutsReport:
        """Return the latest rollouts."""
        return RolloutsReport(rollouts=self.context.telemetry.rollouts())

    def by_name(self) -> dict[str, Callable[[], JSON]]:
        """Return the reports as the control API serves them."""
        return {
            "status": lambda: self.status().model_dump(mode="json"),
            "peers": lambda: self.peers().model_dump(mode="json"),
            "rollouts": lambda: self.rollouts().model_dump(mode="json"),
        }

    def _epoch(self) -> int:
        return self.engine.epoch(self.context.clock())

    def _peer(self, info: PeerInfo) -> PeerReport:
        node = _node_of_peer(info.peer_id)
        accounts = self.engine.certificates.accounts_of(node) if node else ()
        account = accounts[0] if accounts else None
        return PeerReport(
            peer_id=info.peer_id,
            node_id=node.hex() if node and account else None,
            account=str(account) if account else None,
            address=info.addresses[0] if info.addresses else None,
            score=info.score,
            reputation=self.engine.reputation.evidence(account, self._epoch()).weight if account else None,
            accepted=info.received - info.rejected,
            refused=info.rejected,
        )

    def _ledger(self) -> LedgerReport:
        context = self.context
        if not (context.manifest.has_chain and context.config.ledger.enabled):
            return LedgerReport()
        status = self.chain.status()
        return LedgerReport(
            enabled=True,
            chain_id=context.manifest.chain_id,
            registered=(context.author.account, context.author.node) in status.claims,
            outbox=status.pending,
            stuck=status.stuck,
            points=self.ledger.points,
            last_receipt=_iso(receipt) if (receipt := status.last_receipt_seconds) is not None else None,
            last_error=status.last_error,
            endpoints=tuple(
                EndpointReport(
                    name=end.name, head=end.head, trouble=end.trouble, disagreements=end.disagreements
                )
                for end in status.endpoints
            ),
        )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _node_of_peer(peer_id: str) -> NodeId | None:
    key = key_from_peer_id(peer_id)
    return NodeId(key) if key else None
