"""Messages that were not admitted: by forwarder, bounded, with the stage that refused them."""

from __future__ import annotations

from sapo_client.dashboard.refusals import (
    MAX_DETAIL,
    MAX_FORWARDERS,
    MAX_OF_A_FORWARDER,
    RefusedMessage,
    RefusedMessages,
)
from sapo_protocol.rules import STAGES


def event(forwarder: str, digest: bytes | None = b"\xab", **fields: object) -> dict[str, object]:
    known: dict[str, object] = {
        "reason": "bad_signature",
        "rule": "R7.1",
        "stage": 7,
        "detail": "another key",
    }
    return {**known, "message": digest, "content_id": None, "account": None, "forwarder": forwarder} | fields


def test_a_message_is_kept_with_its_stages() -> None:
    messages = RefusedMessages()
    messages.note(event("peer"), at=5.0)
    [kept] = messages.newest()
    assert kept == RefusedMessage("peer", 5.0, "ab", "R7.1", 7, "bad_signature", "another key")
    stages = kept.stages()
    assert [stage.name for stage in stages] == list(STAGES)
    assert [stage.passed for stage in stages] == [True] * 7 + [False] + [None] * 6
    assert (stages[7].rule, stages[7].detail, stages[8].detail) == ("R7.1", "another key", "not reached")


def test_what_the_transport_dropped_is_counted() -> None:
    messages = RefusedMessages()
    flood = event("peer", None, reason="flood", rule="R0.3", stage=0, count=40, detail="")
    messages.note(flood, at=1.0)
    messages.note(event("peer"), at=2.0)
    assert messages.by_forwarder() == {"peer": {"flood": 40, "bad_signature": 1}}
    assert [(each.message, each.count) for each in messages.newest()] == [("ab", 1), (None, 40)]


def test_refusals_after_admission_are_not_listed() -> None:
    messages = RefusedMessages()
    messages.note({"reason": "text_policy", "rule": "R9.1", "stage": 9, "forwarder": None}, at=1.0)
    assert list(messages.newest()) == []


def test_a_peer_with_many_refusals_evicts_only_its_own() -> None:
    messages = RefusedMessages()
    messages.note(event("quiet", detail="x" * 1000), at=0.0)
    for number in range(100):
        messages.note(event("loud"), at=float(number + 1))
    kept = list(messages.newest())
    assert [each.forwarder for each in kept] == ["loud"] * MAX_OF_A_FORWARDER + ["quiet"]
    assert len(kept[-1].detail) == MAX_DETAIL
    assert messages.by_forwarder() == {"loud": {"bad_signature": 100}, "quiet": {"bad_signature": 1}}
    for number in range(MAX_FORWARDERS):
        messages.note(event(f"peer {number}"), at=200.0 + number)
    assert len(messages.by_forwarder()) == MAX_FORWARDERS
    assert "quiet" not in messages.by_forwarder()
