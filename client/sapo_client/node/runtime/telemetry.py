"""What a node tells about itself: events, counters, and the evidence for its reports."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.reports import RolloutReport
from sapo_protocol.errors import Reason, RemoteProtocolError, Verdict
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rules import Rule
from sapo_protocol.suite import Suite
from sapo_verification.reputation.penalties import verdict
from sapo_verification.types import AdmittedRollout, VerifiedRollout

RECENT_ROLLOUTS: Final = 512
"""How many rollouts ``sapo rollouts`` can show."""


class Telemetry:
    """The node's observer: every fact goes to the event file, the metrics and the counters at once."""

    def __init__(self, events: EventLog, metrics: NodeMetrics, suite: Suite, own: Account) -> None:
        self.events = events
        self.metrics = metrics
        self.refusals: Counter[Reason] = Counter()
        self.messages_refused = 0
        self.accepted = 0
        self.shared = 0
        self.sampled_own = 0
        self.sampled_external = 0
        self.on_verified: list[Callable[[VerifiedRollout], None]] = []
        self._suite = suite
        self._own = own
        self._recent: dict[ContentId, RolloutReport] = {}
        self._order: deque[ContentId] = deque()

    def message_refused(self, error: RemoteProtocolError, data: bytes, forwarder: str) -> Verdict:
        """A message that admission refused; returns its verdict."""
        decided = verdict(error.reason)
        self.messages_refused += 1
        self.refusals[error.reason] += 1
        self.metrics.message(decided, error.reason)
        self.events.write(
            "refused",
            reason=error.reason,
            rule=error.rule.number,
            stage=error.rule.stage,
            message=sha256(data).digest(),
            content_id=None,
            account=None,
            forwarder=forwarder,
            detail=error.detail,
        )
        return decided

    def flooded(self, forwarder: str, count: int) -> None:
        """Moments in which the transport stopped reading somebody who sent too much."""
        self.refusals[Reason.FLOOD] += count
        self.messages_refused += count
        self.events.write(
            "refused", reason=Reason.FLOOD, rule=Rule.CONNECTION_BUDGET.number,
            stage=Rule.CONNECTION_BUDGET.stage, message=None, content_id=None, account=None,
            forwarder=forwarder, count=count, detail="more than its connection may carry",
        )  # fmt: skip

    def admitted(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """A stranger's rollout that passed admission."""
        self.accepted += 1
        self.metrics.message(Verdict.ACCEPT, "admitted")
        rollout = admitted.rollout
        self.events.write(
            "admitted",
            content_id=admitted.content_id,
            message=sha256(admitted.envelope).digest(),
            account=rollout.account,
            node=rollout.node,
            forwarder=forwarder,
        )
        self._remember(admitted, "admitted")

    def published(self, admitted: AdmittedRollout, peers: int) -> None:
        """An own rollout that went out."""
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

    def refused(self, rule: Rule, content_id: ContentId, account: Account, detail: str) -> None:
        """An admitted rollout that went no further."""
        if account == self._own:
            return  # our own dull groups are not refusals of anybody
        self.refusals[rule.reason] += 1
        self.metrics.refused(rule.reason)
        self._update(content_id, f"refused: {rule.reason}")
        self.events.write(
            "refused", reason=rule.reason, rule=rule.number, stage=rule.stage, message=None,
            content_id=content_id, account=account, forwarder=None, detail=detail,
        )  # fmt: skip

    def proved(self, account: Account, epoch: int, slot: int, forwarder: str | None) -> None:
        """An equivocation that is proved now; no forwarder means that this node proved it."""
        self.metrics.refused(Reason.EQUIVOCATION)
        self.events.write("equivocation_proved", account=account, epoch=epoch, slot=slot, forwarder=forwarder)

    def verified(self, rollout: VerifiedRollout) -> None:
        """A rollout that was re-derived and re-scored."""
        self._remember(rollout.admitted, "verified", rollout.mean_reward)
        for listener in self.on_verified:
            listener(rollout)
        self.events.write(
            "verified",
            content_id=rollout.content_id,
            account=rollout.account,
            mean_reward=round(rollout.mean_reward, 4),
        )

    def sampled(self, rollout: VerifiedRollout) -> None:
        """A rollout that entered a batch."""
        self._update(rollout.content_id, "sampled")

    def rollouts(self) -> tuple[RolloutReport, ...]:
        """The latest rollouts, newest last."""
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
