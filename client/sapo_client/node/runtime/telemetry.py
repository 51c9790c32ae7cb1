"""Telemetry of a node: events, metrics, counters, and recent rollouts for its reports."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from typing import Final

from sapo_client.config import Config
from sapo_client.dashboard.history import FigureHistory, open_history
from sapo_client.dashboard.recorder import DashboardRecorder
from sapo_client.keystore import Identity
from sapo_client.node.runtime.tracking import Tracking
from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.outcomes import OutcomeStore
from sapo_client.observe.refusal_events import RefusalEvents
from sapo_client.observe.reports import RolloutReport
from sapo_client.paths import DataDir
from sapo_protocol.equivocation import EquivocationProof
from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.suite import Suite
from sapo_verification.observer import Observer
from sapo_verification.reputation.penalties import verdict
from sapo_verification.types import AdmittedRollout, VerifiedRollout

RECENT_ROLLOUTS: Final = 512
"""Rollouts that ``sapo rollouts`` can show."""


class Telemetry(Observer):
    """Observer that writes every decision to the event file, the metrics and the counters.

    Of refused messages the event file contains some in full, and the number of the others.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        events: EventLog,
        metrics: NodeMetrics,
        suite: Suite,
        own: Account,
        *,
        recorder: DashboardRecorder | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.events = events
        self.refusal_events = RefusalEvents(events, clock)
        self.metrics = metrics
        self.tracking: Tracking | None = None
        self.refusals: Counter[Reason] = Counter()
        self.messages_refused = 0
        self.accepted = 0
        self.shared = 0
        self.sampled_own = 0
        self.sampled_external = 0
        self.recorder = recorder or DashboardRecorder(FigureHistory(":memory:"), suite, own)
        events.listen(self.recorder.note)
        events.listen(metrics.note)
        self._suite = suite
        self._own = own
        self._recent: dict[ContentId, RolloutReport] = {}
        self._order: deque[ContentId] = deque()

    async def track(self) -> None:
        """Send figures to the tracker until cancelled; return at once if none is configured."""
        if self.tracking is not None:
            await self.tracking.run()

    def message_refused(self, error: RemoteProtocolError, message: bytes, source: str) -> None:
        """Report a message that admission refused."""
        self.messages_refused += 1
        self.refusals[error.reason] += 1
        self.metrics.message(verdict(error.reason), error.reason)
        self._write_refusal(
            error.rule,
            source,
            message=sha256(message).digest(),
            content_id=None,
            account=None,
            detail=error.detail,
        )

    def flooded(self, forwarder: str, count: int) -> None:
        """Report how often the transport stopped reading from a peer that sent too much."""
        self.refusals[Reason.FLOOD] += count
        self.messages_refused += count
        self._write_refusal(
            Rule.CONNECTION_BUDGET, forwarder, message=None, content_id=None, account=None,
            count=count, detail="the peer exceeded the limit of its connection",
        )  # fmt: skip

    def _write_refusal(self, rule: Rule, forwarder: str, **fields: object) -> None:
        """Write or only count the refusal of a message; the page shows the latest of each peer in any
        case."""
        named = {"reason": rule.reason, "rule": rule.number, "stage": rule.stage, "forwarder": forwarder}
        refusal = named | fields
        if not self.refusal_events.write(refusal):
            self.recorder.note_refusal(refusal)

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Report a rollout from outside that passed admission."""
        self.accepted += 1
        self.metrics.message(Verdict.ACCEPT, "admitted")
        rollout = admitted.rollout
        self.events.write(
            "admitted",
            content_id=admitted.content_id,
            message=sha256(message).digest(),
            account=rollout.account,
            node=rollout.node,
            forwarder=source,
        )
        self._remember(admitted, "admitted")

    def published(self, admitted: AdmittedRollout, peers: int) -> None:
        """Report an own rollout that was sent."""
        self.shared += 1
        self.metrics.shared()
        rollout = admitted.rollout
        self.events.write(
            "published",
            content_id=admitted.content_id,
            epoch=rollout.epoch,
            slot=rollout.slot,
            family=self._suite.families[rollout.family].name,
            peers=peers,
        )

    def queued(self, admitted: AdmittedRollout) -> None:
        """Do nothing, since most rollouts are queued."""

    def displaced(self, admitted: AdmittedRollout) -> None:
        """Report a rollout that will not be audited."""
        self.events.write("audit_skipped", content_id=admitted.content_id)

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Report an admitted rollout that was refused later."""
        if admitted.account == self._own:
            return  # own groups without advantage are not counted as refusals
        self.refusals[rule.reason] += 1
        self.metrics.refused(rule.reason)
        self._update(admitted.content_id, f"refused: {rule.reason}")
        self.events.write(
            "refused", reason=rule.reason, rule=rule.number, stage=rule.stage, message=None,
            content_id=admitted.content_id, account=admitted.account, forwarder=None, detail=detail,
        )  # fmt: skip

    def proved(self, proof: EquivocationProof, source: str | None) -> None:
        """Report a proof of equivocation; ``source`` is None if this node made it."""
        epoch, account, slot = proof.place
        self.metrics.refused(Reason.EQUIVOCATION)
        self.events.write("equivocation_proved", account=account, epoch=epoch, slot=slot, forwarder=source)

    def own_slot_conflict(self, epoch: int, slot: int) -> None:
        """Report a second content in a slot of the own account."""
        self.events.write("own_slot_taken_twice", epoch=epoch, slot=slot)

    def verified(self, rollout: VerifiedRollout) -> None:
        """Report a rollout that was re-derived and re-scored."""
        self._remember(rollout.admitted, "verified", rollout.mean_reward)
        self.events.write(
            "verified",
            content_id=rollout.content_id,
            account=rollout.account,
            mean_reward=round(rollout.mean_reward, 4),
        )

    def sampled(self, rollout: VerifiedRollout, use: str) -> None:
        """Report a rollout that entered a batch, and its use: reinforced, practised or imitated."""
        self._update(rollout.content_id, use)

    def rollouts(self) -> tuple[RolloutReport, ...]:
        """Return the latest rollouts, newest last."""
        return tuple(self._recent[id_] for id_ in self._order)

    def _remember(self, admitted: AdmittedRollout, state: str, reward: float | None = None) -> None:
        rollout, id_ = admitted.rollout, admitted.content_id
        if id_ not in self._recent:
            self._order.append(id_)
        self._recent[id_] = RolloutReport(
            content_id=id_.hex(),
            node_id=rollout.node.hex(),
            account=str(rollout.account),
            epoch=rollout.epoch,
            slot=rollout.slot,
            family=self._suite.families[rollout.family].name,
            completions=len(rollout.completions),
            reward=reward,
            state=state,
            own=rollout.account == self._own,
        )
        if len(self._order) > RECENT_ROLLOUTS:
            del self._recent[self._order.popleft()]

    def _update(self, content_id: ContentId, state: str) -> None:
        if report := self._recent.get(content_id):
            self._recent[content_id] = report.model_copy(update={"state": state})


def open_telemetry(config: Config, data: DataDir, manifest: Manifest, identity: Identity) -> Telemetry:
    """Return the telemetry of a node with its event file open."""
    events = EventLog(data.events, max_bytes=config.observe.events_max_bytes, keep=config.observe.events_keep)
    events.listen(OutcomeStore(data.outcomes).note)
    metrics = NodeMetrics(
        version=version("sapo-swarm"), swarm_id=str(manifest.swarm_id), node_id=str(identity.node_id)
    )
    recorder = DashboardRecorder(open_history(data.history), manifest.suite, identity.account)
    tracking = Tracking(config.observe, data, run=identity.node_id.hex()[:12])
    telemetry = Telemetry(events, metrics, manifest.suite, identity.account, recorder=recorder)
    telemetry.tracking = tracking
    events.listen(tracking.note)
    return telemetry
