"""Status line, metrics and the status kept for a node that is down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.reports import StatusReport, keep_status, kept_status
from sapo_client.observe.status import RoundSummary
from sapo_client.paths import DataDir

SUMMARY = RoundSummary(
    round=128,
    step=130,
    reward=0.61,
    reward_change=0.04,
    pool=340,
    pool_peers=12,
    own_groups=4,
    external_groups=4,
    refused_share=0.02,
    round_seconds=38.1,
    mismatch=0.002,
    age=1.0,
    pool_age=7.5,
    ranks=2,
)
REPORT = StatusReport(
    state="running",
    updated="2026-01-01T00:00:00+00:00",
    version="0.1.0",
    swarm_name="test",
    swarm_id="00" * 32,
    node_id="11" * 32,
    peer_id="12D3",
    account="0x" + "22" * 20,
    model="bundled",
    device="cpu",
    uptime_seconds=1.5,
    epoch=3,
    round=2,
    step=2,
    reward=0.25,
    pool=7,
    peers=3,
    shared=8,
    accepted=24,
    sampled_own=8,
    sampled_external=6,
    refused={"bad-signature": 2},
)


def test_the_status_line() -> None:
    assert SUMMARY.line() == (
        "round 128  step 130  reward 0.61 (+0.04)  pool 340 from 12 peers  sampled 4+4  refused 2 %  38.1 s"
    )
    first = RoundSummary(
        round=1,
        step=1,
        reward=0.0,
        reward_change=None,
        pool=0,
        pool_peers=1,
        own_groups=4,
        external_groups=0,
        refused_share=0.0,
        round_seconds=0.4,
    )
    assert first.line() == (
        "round 1  step 1  reward 0.00 (first)  pool 0 from 1 peer  sampled 4+0  refused 0 %  0.4 s"
    )


def test_the_status_line_of_a_node_that_trains_alone_names_no_others() -> None:
    line = "round 128  step 130  reward 0.61 (+0.04)  sampled 4  38.1 s"
    assert replace(SUMMARY, is_alone=True).line() == line


def test_metrics_count_by_reason() -> None:
    metrics = NodeMetrics(version="0.1.0", swarm_id="ab", node_id="cd")
    metrics.round(SUMMARY)
    metrics.message("reject", "signature")
    metrics.message("reject", "signature")
    metrics.message("accept", "")
    metrics.refused("checker-timeout")
    metrics.shared()
    metrics.peers(5)
    metrics.ledger(outbox=3, last_receipt_seconds=1_800_000_000.0)
    metrics.ledger_errors("disagreement", 2)
    metrics.ledger_errors("disagreement", 1)
    metrics.note("canary", {"reward": 0.625, "shadow": 0.5, "step": 130})
    metrics.health([HealthFinding(FindingCode.DISK_LOW, FindingLevel.ERROR, "the disk is full", "free some")])
    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }
    absent: dict[tuple[str, tuple[str, ...]], float] = {
        ("sapo_health_finding", (str(code),)): 0 for code in FindingCode
    }
    assert samples == absent | {
        ("sapo_node_info", ("cd", "ab", "0.1.0")): 1,
        ("sapo_rounds_total", ()): 1,
        ("sapo_step", ()): 130,
        ("sapo_reward_mean", ()): 0.61,
        ("sapo_held_out_reward", ()): 0.625,
        ("sapo_held_out_reward_own_alone", ()): 0.5,
        ("sapo_sampler_mismatch", ()): 0.002,
        ("sapo_batch_age_steps", ()): 1.0,
        ("sapo_pool_age_steps", ()): 7.5,
        ("sapo_learner_ranks", ()): 2.0,
        ("sapo_pool_rollouts", ()): 340,
        ("sapo_peers", ()): 5,
        ("sapo_messages_total", ("signature", "reject")): 2,
        ("sapo_messages_total", ("", "accept")): 1,
        ("sapo_rollouts_shared_total", ()): 1,
        ("sapo_rollouts_refused_total", ("checker-timeout",)): 1,
        ("sapo_groups_sampled_total", ("own",)): 4,
        ("sapo_groups_sampled_total", ("external",)): 4,
        ("sapo_ledger_outbox_entries", ()): 3,
        ("sapo_ledger_errors_total", ("disagreement",)): 3,
        ("sapo_ledger_last_receipt_timestamp_seconds", ()): 1_800_000_000,
        ("sapo_healthy", ()): 0,
        ("sapo_health_finding", ("disk_low",)): 2,
        ("sapo_round_seconds_count", ()): 1,
        ("sapo_round_seconds_sum", ()): 38.1,
    }


def test_before_a_check_there_are_no_figures_of_held_out_tasks() -> None:
    rendered = NodeMetrics(version="0.1.0", swarm_id="ab", node_id="cd").render().decode()
    shown = [line for line in rendered.splitlines() if line.startswith("sapo_held_out")]
    assert shown == [
        "sapo_held_out_reward NaN",
        "sapo_held_out_reward_own_alone NaN",
    ]


def test_a_stored_status_distinguishes_a_stop_from_a_kill_and_an_error(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert kept_status(data) is None
    keep_status(data.status, REPORT)
    assert kept_status(data) == REPORT.model_copy(update={"state": "killed"})
    data.last_error.write_text("the model is gone\n")
    assert kept_status(data) == REPORT.model_copy(update={"state": "failed"})
    data.last_error.unlink()
    keep_status(data.status, stopped := REPORT.model_copy(update={"state": "stopped"}))
    assert kept_status(data) == stopped
    data.status.write_text(data.status.read_text()[:-20])
    assert kept_status(data) is None
