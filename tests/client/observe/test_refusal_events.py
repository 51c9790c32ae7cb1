"""Refused messages in the event file cannot displace other events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.swarm import Identity, make_suite

from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.observe.events import Event, EventLog, read_events
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.refusal_events import (
    INTERVAL_SECONDS,
    MAX_OF_A_PEER,
    MAX_OF_A_REASON,
    counts_by_reason,
)
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.rules import Reason, Rule

RULES = sorted({rule.reason: rule for rule in Rule}.values(), key=lambda rule: rule.number)
"""One for each reason."""


class Trial:
    """The telemetry of a node, with a clock that the test sets."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.now = 1000.0
        self.path = folder / "events.jsonl"
        self.log = EventLog(self.path, max_bytes=max_bytes, keep=1)
        metrics = NodeMetrics(version="0", swarm_id="0", node_id="0")
        self.telemetry = Telemetry(
            self.log, metrics, make_suite(), Identity(1).account, clock=lambda: self.now
        )

    def refuse(self, rule: Rule, peer: str, detail: str = "as sent") -> None:
        self.telemetry.message_refused(RemoteProtocolError(rule, detail), b"message", peer)

    def end_interval(self) -> None:
        self.now += INTERVAL_SECONDS
        self.telemetry.refusal_events.look()

    def events(self, name: str) -> list[Event]:
        return [event for event in read_events(self.path) if event["event"] == name]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    opened = Trial(tmp_path, max_bytes=1024 * 1024)
    yield opened
    opened.log.close()


def test_many_refusals_do_not_evict_earlier_events(trial: Trial) -> None:
    trial.log.write("service_failed", service="audit", error="what the operator has to see")
    for minute in range(2):
        for number in range(20_000):
            trial.refuse(RULES[number % len(RULES)], f"peer {minute} {number % 300}", "x" * 100)
        trial.end_interval()
    assert [event["error"] for event in trial.events("service_failed")] == ["what the operator has to see"]
    assert trial.telemetry.messages_refused == 40_000


def test_many_refusals_for_other_reasons_do_not_limit_a_reason(trial: Trial) -> None:
    quiet, *loud = RULES
    for number in range(5_000):
        trial.refuse(loud[number % len(loud)], f"peer {number}")
    trial.refuse(quiet, "another", "the one that matters")
    assert [event["detail"] for event in trial.events("refused") if event["reason"] == quiet.reason] == [
        "the one that matters"
    ]


def test_a_peer_with_many_refusals_leaves_places_to_others(trial: Trial) -> None:
    for peer in ("loud", "quiet"):
        for _ in range(100 if peer == "loud" else 1):
            trial.refuse(Rule.AUTHOR_INTRODUCED, peer)
    written = Counter(str(event["forwarder"]) for event in trial.events("refused"))
    assert written == {"loud": MAX_OF_A_PEER, "quiet": 1}


def test_refusals_beyond_the_limit_are_counted(trial: Trial) -> None:
    sent: Counter[str] = Counter()
    for number in range(3_000):
        rule = RULES[number % 3 + 3]
        sent[rule.reason] += 1
        trial.refuse(rule, f"peer {number % 7}")
    for peer in range(100):
        sent[Reason.FLOOD] += 5
        trial.telemetry.flooded(f"peer {peer}", 5)
    trial.end_interval()
    written: Counter[str] = Counter()
    for event in trial.events("refused"):
        count = event.get("count", 1)
        assert isinstance(count, int)
        written[str(event["reason"])] += count
    [counted] = trial.events("refusals_counted")
    assert written + Counter(counts_by_reason(counted)) == sent
    assert (counted["count"], counted["forwarders"], counted["seconds"]) == (
        (sent - written).total(),
        7 + 100 - MAX_OF_A_REASON,  # those of whom something is not there in full
        INTERVAL_SECONDS,
    )
    assert len(trial.events("refused")) == 4 * MAX_OF_A_REASON
    assert Counter({str(reason): count for reason, count in trial.telemetry.refusals.items()}) == sent
    page = trial.telemetry.recorder.refusals.by_forwarder()
    latest = {f"peer {peer}" for peer in range(36, 100)}  # the page keeps 64 peers, the quiet ones as well
    assert page == {peer: {"flood": 5} for peer in latest}
    assert sum(sample.value for sample in trial.telemetry.recorder._samples) == sent.total()


def test_the_page_counts_every_refusal_of_a_peer(trial: Trial) -> None:
    for _ in range(500):
        trial.refuse(Rule.AUTHOR_INTRODUCED, "loud")
    reason = Rule.AUTHOR_INTRODUCED.reason
    assert trial.telemetry.recorder.refusals.by_forwarder() == {"loud": {reason: 500}}


def test_each_interval_starts_from_zero_and_an_empty_one_writes_nothing(trial: Trial) -> None:
    for _ in range(2):
        for _ in range(MAX_OF_A_PEER + 1):
            trial.refuse(Rule.AUTHOR_INTRODUCED, "peer")
        trial.end_interval()
    trial.end_interval()
    trial.telemetry.refusal_events.sum_up()
    names = [str(event["event"]) for event in read_events(trial.path)]
    assert names == [*["refused"] * MAX_OF_A_PEER, "refusals_counted"] * 2
