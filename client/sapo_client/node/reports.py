"""The reports that the node serves through its control API."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version

from sapo_client.config_layers import Setting
from sapo_client.dashboard.claim import Claim, ClaimDesk
from sapo_client.dashboard.pages import DashboardPages
from sapo_client.learner.backend import Backend
from sapo_client.learner.process import Learner
from sapo_client.node.auditing.chain import ChainRole
from sapo_client.node.auditing.settlement_services import LedgerRole
from sapo_client.node.health import HealthWatch
from sapo_client.node.page import NodePage
from sapo_client.node.router_report import router_report
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.shutdown import Pause, Shutdown
from sapo_client.node.training.rounds import Rounds
from sapo_client.observe.control_client import keep_token
from sapo_client.observe.plain import JSON
from sapo_client.observe.reports import (
    ChangeReport,
    EndpointReport,
    HeldOutReport,
    IslandsReport,
    LedgerReport,
    OwnAloneReport,
    PeerReport,
    PeersReport,
    RolloutsReport,
    State,
    StatusReport,
    keep_status,
)
from sapo_client.release import DISTRIBUTION, RUNNING
from sapo_client.swarm.nearby import dialable
from sapo_client.swarm.peer_id import key_from_peer_id
from sapo_client.swarm.transport import PeerInfo
from sapo_protocol.identifiers import NodeId
from sapo_verification.engine import Engine

_LOG = logging.getLogger(__name__)


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
    pause: Pause
    health: HealthWatch
    started_seconds: float
    settings: tuple[Setting, ...] = ()
    claim: Claim | None = None
    coming: Callable[[], ChangeReport | None] = lambda: None

    def status(self) -> StatusReport:
        """Return the state of the node."""
        context, telemetry, rounds = self.context, self.context.telemetry, self.rounds
        return StatusReport(
            state=self._state(),
            updated=_iso(context.clock()),
            version=_version(),
            swarm_name=context.manifest.name,
            swarm_id=context.manifest.swarm_id.hex(),
            alone=context.config.swarm.alone,
            node_id=context.author.node.hex(),
            peer_id=context.transport.peer_id,
            account=str(context.author.account),
            addresses=dialable(context.transport.addresses),
            model=context.config.learner.model,
            device=self._device(),
            uptime_seconds=round(context.clock() - self.started_seconds, 1),
            epoch=self.epoch(),
            round=rounds.reporter.round,
            step=self.learner.step,
            reward=rounds.reporter.last_reward,
            reward_start=rounds.reporter.first_reward,
            held_out=self._held_out(),
            pool=len(self.engine.pool),
            pool_age=None if (last := rounds.reporter.last) is None else last.pool_age,
            batch_age=None if last is None else last.age,
            ranks=None if last is None else last.ranks,
            waits_for_epoch=self.health.waits_for_epoch,
            peers=len(context.transport.peers()),
            reachable=context.transport.reachability().value,
            router=router_report(context.transport.router()),
            neighbours=context.transport.neighbours(),
            shared=telemetry.shared,
            accepted=telemetry.accepted,
            sampled_own=telemetry.sampled_own,
            sampled_external=telemetry.sampled_external,
            refused={str(reason): count for reason, count in sorted(telemetry.refusals.items())},
            ledger=self._ledger(),
            islands=self._islands(),
            change=self.coming(),
            findings=self.health.findings,
        )

    def keep(self, *, stopped: bool = False) -> None:
        """Write the status to a file, for `sapo status` after this process has ended."""
        report = self.status().model_copy(update={"state": "stopped"} if stopped else {})
        try:
            keep_status(self.context.data.status, report)
        except OSError as error:  # as with a full disk, which the health reports; training continues
            _LOG.warning("the status was not written: %s", error)

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

    def pages(self) -> DashboardPages:
        """Return the server of this node's page."""
        uses_ledger = self.context.manifest.has_chain and self.context.config.ledger.enabled
        desk = ClaimDesk(self.claim if uses_ledger else None)
        return DashboardPages(NodePage(self, desk), keep_token(self.context.data))

    def _state(self) -> State:
        if self.shutdown.draining.is_set():
            return "draining"
        return "paused" if self.pause.holds else "running"

    def _device(self) -> str:
        """Return the device that is in use, not the configured one (which may be ``auto``)."""
        learner = self.learner
        return learner.about.device if isinstance(learner, Learner) else self.context.config.learner.device

    def epoch(self) -> int:
        """Return the current epoch."""
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
            reputation=self.engine.reputation.evidence(account, self.epoch()).weight if account else None,
            accepted=info.received - info.rejected,
            refused=info.rejected,
        )

    def _held_out(self) -> HeldOutReport | None:
        last = self.rounds.held_out
        if last is None:
            return None
        return HeldOutReport(
            step=last.step,
            items=last.items,
            reward=round(last.reward, 4),
            reward_first=round(last.first_reward, 4),
            own_alone=None
            if last.shadow is None
            else OwnAloneReport(
                step=last.shadow_step,
                reward=round(last.shadow, 4),
                lead=round(last.lead, 4),
                lead_error=round(last.lead_error, 4),
            ),
        )

    def _islands(self) -> IslandsReport | None:
        islands, epoch = self.engine.islands, self.epoch()
        if not islands.is_divided:
            return None
        return IslandsReport(
            count=islands.count(epoch),
            is_known=islands.knows(epoch),
            next_count=islands.count(epoch + 1) if islands.knows(epoch + 1) else None,
            carried=tuple(sorted(islands.carried)) if islands.has_joined else (),
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


@cache
def _version() -> str:
    """Return the version of the package that this process runs; looking it up reads files."""
    return RUNNING or version(DISTRIBUTION)  # what is installed now may be another


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _node_of_peer(peer_id: str) -> NodeId | None:
    key = key_from_peer_id(peer_id)
    return NodeId(key) if key else None
