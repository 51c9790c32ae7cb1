"""The node's Prometheus metrics; the names are an interface and never change their meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import is_healthy
from sapo_client.observe.status import RoundSummary

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge

NODE_LABELS = ("version", "swarm_id", "node_id")
# From a bundled policy on a CPU (below a second) to a 7 B model on one GPU (minutes).
ROUND_BUCKETS_SECONDS = (0.3, 1, 3, 10, 30, 60, 120, 300, 600)
FINDING_TEXT = "Findings of the last assessment of health by code: 0 absent, 1 warning, 2 error."


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, as listed in the reference."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()


class NodeMetrics:
    """All metrics of one node, in a registry of their own."""

    def __init__(self, *, version: str, swarm_id: str, node_id: str) -> None:
        from prometheus_client import CollectorRegistry, Gauge, Histogram, Info

        self._registry = CollectorRegistry()
        self._described = [Metric("sapo_node_info", "info", "Which node this is.", NODE_LABELS)]
        Info("sapo_node", "Which node this is.", registry=self._registry).info(
            dict(zip(NODE_LABELS, (version, swarm_id, node_id), strict=True))
        )
        self._rounds = self._counter("sapo_rounds", "Rounds finished since the start.")
        self._step = self._gauge("sapo_step", "Optimiser steps of the policy, over all starts.")
        self._reward = self._gauge("sapo_reward_mean", "Mean reward of the last round's own completions.")
        self._mismatch = self._gauge(
            "sapo_sampler_mismatch", "Mismatch of sampler and trainer in the last step, nats per token."
        )
        self._age = self._gauge(
            "sapo_batch_age_steps", "Steps since the last batch's own groups were sampled, mean over them."
        )
        self._pool_age = self._gauge(
            "sapo_pool_age_steps", "Steps of this node since the pool's rollouts arrived, mean over them."
        )
        self._ranks = self._gauge("sapo_learner_ranks", "Processes that computed the last step.")
        self._held_out = self._gauge(
            "sapo_held_out_reward", "Mean reward on the held-out tasks of the last check."
        )
        self._held_out_own_alone = self._gauge(
            "sapo_held_out_reward_own_alone",
            "The same of a copy of the policy that has since been trained on own answers alone.",
        )
        for figure in (self._held_out, self._held_out_own_alone):
            figure.set(math.nan)  # until the first check
        self._pool = self._gauge("sapo_pool_rollouts", "Rollouts of others that wait for verification.")
        self._peers = self._gauge("sapo_peers", "Connected peers.")
        self._messages = self._counter(
            "sapo_messages", "Messages from the network by verdict and reason.", "verdict", "reason"
        )
        self._shared = self._counter("sapo_rollouts_shared", "Own rollouts sent to the swarm.")
        self._refused = self._counter(
            "sapo_rollouts_refused", "Admitted rollouts that verification refused, by reason.", "reason"
        )
        self._sampled = self._counter("sapo_groups_sampled", "Groups trained on, by origin.", "origin")
        self._outbox = self._gauge("sapo_ledger_outbox_entries", "Ledger transactions not yet confirmed.")
        self._ledger_errors = self._counter(
            "sapo_ledger_errors", "Failed queries to the chain and failed transactions, by kind.", "kind"
        )
        self._receipt = self._gauge(
            "sapo_ledger_last_receipt_timestamp_seconds", "Unix time of the last confirmed transaction."
        )
        self._healthy = self._gauge("sapo_healthy", "1 if no finding of the last assessment is an error.")
        self._findings = Gauge("sapo_health_finding", FINDING_TEXT, ("code",), registry=self._registry)
        self._described.append(Metric("sapo_health_finding", "gauge", FINDING_TEXT, ("code",)))
        self._described.append(Metric("sapo_round_seconds", "histogram", "Duration of a round."))
        self._seconds = Histogram(
            "sapo_round_seconds",
            "Duration of a round.",
            buckets=ROUND_BUCKETS_SECONDS,
            registry=self._registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        from prometheus_client import Counter

        self._described.append(Metric(f"{name}_total", "counter", text, labels))
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        from prometheus_client import Gauge

        self._described.append(Metric(name, "gauge", text))
        return Gauge(name, text, registry=self._registry)

    def round(self, summary: RoundSummary) -> None:
        """Record the end of a round."""
        self._rounds.inc()
        self._step.set(summary.step)
        self._reward.set(summary.reward)
        self._mismatch.set(summary.mismatch)
        self._age.set(summary.age)
        self._pool_age.set(summary.pool_age)
        self._ranks.set(summary.ranks)
        self._pool.set(summary.pool)
        self._sampled.labels("own").inc(summary.own_groups)
        self._sampled.labels("external").inc(summary.external_groups)
        self._seconds.observe(summary.round_seconds)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record a check on held-out tasks; other events change nothing here."""
        match event, fields:
            case "canary", {"reward": float(reward), "shadow": float(shadow)}:
                self._held_out.set(reward)
                self._held_out_own_alone.set(shadow)

    def message(self, verdict: str, reason: str) -> None:
        """Record the verdict of admission on a message."""
        self._messages.labels(verdict, reason).inc()

    def refused(self, reason: str) -> None:
        """Record that verification refused an admitted rollout."""
        self._refused.labels(reason).inc()

    def shared(self) -> None:
        """Record that an own rollout was sent."""
        self._shared.inc()

    def peers(self, connected: int) -> None:
        """Set the number of connected peers."""
        self._peers.set(connected)

    def ledger(self, *, outbox: int, last_receipt_seconds: float | None) -> None:
        """Set the state of the ledger's outbox."""
        self._outbox.set(outbox)
        if last_receipt_seconds is not None:
            self._receipt.set(last_receipt_seconds)

    def ledger_errors(self, kind: str, count: int) -> None:
        """Record failed queries to the chain or failed transactions."""
        self._ledger_errors.labels(kind).inc(count)

    def health(self, findings: Sequence[HealthFinding]) -> None:
        """Set the findings of an assessment."""
        self._healthy.set(is_healthy(findings))
        levels = {finding.code: 2 if finding.level is FindingLevel.ERROR else 1 for finding in findings}
        for code in FindingCode:
            self._findings.labels(code).set(levels.get(code, 0))

    def described(self) -> tuple[Metric, ...]:
        """Return all metrics, as listed in the reference."""
        return tuple(self._described)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)
