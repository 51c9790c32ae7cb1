"""What a node tells of each training round: the event `step`, metrics, and the summary of its status line."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from statistics import fmean, median
from typing import Final

from sapo_client.learner.report import StepReport
from sapo_client.node.runtime.manifests import is_alone
from sapo_client.node.training.ages import PoolAges
from sapo_client.node.training.round_parts import RoundParts
from sapo_client.observe.status import RoundSummary
from sapo_protocol.identifiers import ContentId
from sapo_protocol.suite import Suite
from sapo_verification.types import SampledBatch, VerifiedRollout

_TREND_ROUNDS: Final = 20
"""Rounds over which the status line's trend is computed."""

_SLOW_FACTOR: Final = 4.0
"""A round that takes this many times as long as the median of the last rounds is logged."""

_LOG = logging.getLogger(__name__)


class RoundReporter:
    """Reports trained rounds, and keeps what the node's status says of them.

    Args:
        show: shows the summary of a round to the operator.

    Attributes:
        round: number of rounds so far, private ones included.
        last: summary of the last one; None before the first.
        first_reward: mean own reward of the first one.
        last_reward: mean own reward of the last twenty.
    """

    def __init__(self, parts: RoundParts, show: Callable[[RoundSummary], None]) -> None:
        self._parts = parts
        self._show = show
        self._rewards: deque[float] = deque(maxlen=_TREND_ROUNDS)
        self._seconds: deque[float] = deque(maxlen=_TREND_ROUNDS)
        self._messages_before = (0, 0)
        self._ages = PoolAges()
        self.round = 0
        self.last: RoundSummary | None = None
        self.first_reward: float | None = None
        self.last_reward: float | None = None

    def look_at_pool(self, step: int) -> None:
        """Note which rollouts wait in the pool before the round that follows ``step``."""
        self._ages.look(self._waiting(), step)

    def report(self, epoch: int, batch: SampledBatch, report: StepReport, seconds: float) -> None:
        """Report a round.

        Args:
            seconds: that it took.
        """
        self.round += 1
        pool_age = self._ages.mean(self._waiting(), report.step)
        self._count_samples(batch)
        self._write_step(epoch, batch, report, pool_age, seconds)
        self._note_slow(report.step, seconds)
        self._summarise(batch, report, pool_age, seconds)

    def _waiting(self) -> list[ContentId]:
        return [each.content_id for each in self._parts.engine.pool.waiting()]

    def _count_samples(self, batch: SampledBatch) -> None:
        telemetry, used = self._parts.telemetry, _used(batch)
        telemetry.sampled_own += _own_groups(batch)
        telemetry.sampled_external += len(used)
        for rollout, use in used:
            telemetry.sampled(rollout, use)

    def _write_step(
        self, epoch: int, batch: SampledBatch, report: StepReport, pool_age: float, seconds: float
    ) -> None:
        parts, used = self._parts, _used(batch)
        parts.telemetry.events.write(
            "step",
            step=report.step,
            epoch=epoch,
            reward=round(_mean_reward(batch), 4),
            batch_reward=round(report.mean_reward, 4),
            loss=report.loss,
            gradient_norm=report.gradient_norm,
            external_weight=round(report.external_weight, 4),
            halvings=report.halvings,
            undone=report.rolled_back,
            ranks=report.ranks,
            mismatch=report.mismatch,
            masked=report.masked,
            too_long=report.too_long,
            template_raised=report.template_raised,
            groups=report.local_groups + report.external_groups,
            skipped=report.skipped_groups,
            age=report.age,
            external_age=self._ages.mean([rollout.content_id for rollout, _ in used], report.step - 1),
            pool_age=pool_age,
            local=[rollout.content_id for rollout in batch.local],
            with_advantage=sum(rollout.is_informative for rollout in batch.local),
            families=_rewards_by_family(batch, parts.manifest.suite),
            private=len(batch.private),
            external=[
                {
                    "content_id": rollout.content_id,
                    "account": rollout.account,
                    "node": rollout.admitted.rollout.node,
                    "use": use,
                }
                for rollout, use in used
            ],
            pool=len(parts.engine.pool),
            pool_accounts=len(parts.engine.pool.accounts()),
            peers=parts.gossip.peer_count,
            seconds=round(seconds, 3),
        )

    def _note_slow(self, step: int, seconds: float) -> None:
        usual = median(self._seconds) if self._seconds else seconds
        if seconds > _SLOW_FACTOR * usual:
            _LOG.info("step %d took %.1f s; the median is %.1f s", step, seconds, usual)
        self._seconds.append(seconds)

    def _summarise(self, batch: SampledBatch, report: StepReport, pool_age: float, seconds: float) -> None:
        parts, reward, before = self._parts, _mean_reward(batch), self._rewards
        self.last = RoundSummary(
            round=self.round,
            step=report.step,
            reward=reward,
            reward_change=reward - fmean(before) if before else None,
            pool=len(parts.engine.pool),
            pool_peers=len(parts.engine.pool.accounts()),
            own_groups=_own_groups(batch),
            external_groups=len(_used(batch)),
            refused_share=self._refused_share(),
            round_seconds=seconds,
            mismatch=report.mismatch,
            age=report.age,
            pool_age=pool_age,
            ranks=report.ranks,
            is_private=bool(batch.private),
            is_alone=is_alone(parts.manifest),
        )
        self._rewards.append(reward)
        self.last_reward = fmean(self._rewards)
        if self.first_reward is None:
            self.first_reward = reward
        parts.telemetry.metrics.round(self.last)
        self._show(self.last)

    def _refused_share(self) -> float:
        """Return the refused part of the messages that arrived since the last round."""
        telemetry = self._parts.telemetry
        refused_before, accepted_before = self._messages_before
        self._messages_before = telemetry.messages_refused, telemetry.accepted
        refused = telemetry.messages_refused - refused_before
        arrived = refused + telemetry.accepted - accepted_before
        return refused / arrived if arrived else 0.0


def _own_groups(batch: SampledBatch) -> int:
    return len(batch.local) + len(batch.private)


def _mean_reward(batch: SampledBatch) -> float:
    """Return the mean reward of own answers; 0 without any."""
    rewards = [each.mean_reward for each in (*batch.local, *batch.private)]
    return fmean(rewards) if rewards else 0.0


def _used(batch: SampledBatch) -> list[tuple[VerifiedRollout, str]]:
    """Return the rollouts of others that a batch uses, each once, with their use."""
    uses = [
        *((rollout, "reinforced") for rollout in batch.external),
        *((group.hint, "practised") for group in batch.practised),
        *((each.source, "imitated") for each in batch.demonstrations if each.source is not None),
    ]
    return list({rollout.content_id: (rollout, use) for rollout, use in uses}.values())


def _rewards_by_family(batch: SampledBatch, suite: Suite) -> dict[str, float]:
    """Return the mean reward of own answers by the name of their family."""
    rewards: dict[str, list[float]] = {}
    for rollout in batch.local:
        rewards.setdefault(suite.families[rollout.task.family].name, []).append(rollout.mean_reward)
    return {name: round(fmean(each), 4) for name, each in sorted(rewards.items())}
