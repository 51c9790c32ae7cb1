"""What the node answers through its control API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from sapo_client.config import Config
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.shutdown import Shutdown
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.training.rounds import Author, Rounds
from sapo_client.observe.plain import JSON
from sapo_client.observe.reports import (
    EndpointReport,
    LedgerReport,
    PeerReport,
    PeersReport,
    RolloutsReport,
    StatusReport,
)
from sapo_client.swarm.transport import PeerInfo, Transport
from sapo_protocol.epochs import epoch_at
from sapo_protocol.identifiers import NodeId
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.sampling.pool import Pool

if TYPE_CHECKING:
    from sapo_client.ledger.service import LedgerClient


@dataclass(frozen=True, slots=True)
class Reports:
    """The node's reports, made on demand from its live parts."""

    config: Config
    manifest: Manifest
    author: Author
    transport: Transport
    node_of_peer: Callable[[str], NodeId | None]
    certificates: CertificateBook
    reputation: Reputation
    pool: Pool
    rounds: Rounds
    step: Callable[[], int]
    telemetry: Telemetry
    ledger: LedgerClient | None
    points: Callable[[], int]
    shutdown: Shutdown
    clock: Clock
    started_seconds: float

    def status(self) -> StatusReport:
        """How the node does."""
        telemetry, rounds = self.telemetry, self.rounds
        return StatusReport(
            state="draining" if self.shutdown.draining.is_set() else "running",
            updated=_iso(self.clock()),
            version=version("sapo-swarm"),
            swarm_name=self.manifest.name,
            swarm_id=self.manifest.swarm_id.hex(),
            node_id=self.author.node.hex(),
            peer_id=self.transport.peer_id,
            account=str(self.author.account),
            addresses=self.transport.addresses,
            model=self.config.learner.model,
            device=self.config.learner.device,
            uptime_seconds=round(self.clock() - self.started_seconds, 1),
            epoch=self._epoch(),
            round=rounds.round,
            step=self.step(),
            reward=rounds.last_reward,
            reward_start=rounds.first_reward,
            pool=len(self.pool),
            peers=len(self.transport.peers()),
            shared=telemetry.shared,
            accepted=telemetry.accepted,
            sampled_own=telemetry.sampled_own,
            sampled_external=telemetry.sampled_external,
            refused={str(reason): count for reason, count in sorted(telemetry.refusals.items())},
            ledger=self._ledger(),
        )

    def peers(self) -> PeersReport:
        """Who is connected, and what is thought of them."""
        return PeersReport(peers=tuple(self._peer(info) for info in self.transport.peers()))

    def rollouts(self) -> RolloutsReport:
        """The latest rollouts."""
        return RolloutsReport(rollouts=self.telemetry.rollouts())

    def by_name(self) -> dict[str, Callable[[], JSON]]:
        """The reports as the control API serves them."""
        return {
            "status": lambda: self.status().model_dump(mode="json"),
            "peers": lambda: self.peers().model_dump(mode="json"),
            "rollouts": lambda: self.rollouts().model_dump(mode="json"),
        }

    def _epoch(self) -> int:
        return epoch_at(self.manifest, max(self.clock(), self.manifest.genesis_seconds))

    def _peer(self, info: PeerInfo) -> PeerReport:
        node = self.node_of_peer(info.peer_id)
        accounts = self.certificates.accounts_of(node) if node else ()
        account = accounts[0] if accounts else None
        return PeerReport(
            peer_id=info.peer_id,
            node_id=node.hex() if node and account else None,
            account=str(account) if account else None,
            address=info.addresses[0] if info.addresses else None,
            score=info.score,
            reputation=self.reputation.evidence(account, self._epoch()).weight if account else None,
            accepted=info.received - info.rejected,
            refused=info.rejected,
        )

    def _ledger(self) -> LedgerReport:
        if self.ledger is None:
            return LedgerReport()
        status = self.ledger.status()
        return LedgerReport(
            enabled=True,
            chain_id=self.manifest.chain_id,
            registered=(self.author.account, self.author.node) in status.claims,
            outbox=status.pending,
            stuck=status.stuck,
            points=self.points(),
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
