"""The path of one message from the wire to the node: validated once, three outcomes."""

from __future__ import annotations

from typing import Any

import pytest
from reference.vectors import load

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.intake import Intake, message_id
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_score import PeerScores, Severity
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule


class IntakeHarness:
    """An intake whose validator looks its verdicts up and records its calls."""

    def __init__(self, verdicts: dict[bytes, Any], limits: TransportLimits | None = None) -> None:
        self.counters, self.bugs, self.disconnected = TransportCounters(), list[Exception](), list[str]()
        self.scores = PeerScores()
        discipline = Discipline(self.scores, self.counters, self.disconnected.append)
        self.intake = Intake(limits or TransportLimits(), discipline, self.counters, self.bugs.append)
        self.verdicts, self.validated = verdicts, list[tuple[bytes, str]]()
        self.intake.subscribe("topic", self.validate)

    def validate(self, data: bytes, forwarder: str) -> Verdict:
        self.validated.append((data, forwarder))
        verdict = self.verdicts[data]
        if isinstance(verdict, Exception):
            raise verdict
        return Verdict(verdict)

    def process(self, data: bytes, forwarder: str = "peer", now: float = 0.0, topic: str = "topic") -> bool:
        return self.intake.process(topic, data, forwarder, now)


def test_an_accepted_message_is_validated_and_forwarded_once() -> None:
    harness = IntakeHarness({b"good": Verdict.ACCEPT})
    assert [harness.process(b"good"), harness.process(b"good", "another"), harness.process(b"good")] == [
        True,
        False,
        False,
    ]
    assert harness.validated == [(b"good", "peer")]
    assert harness.scores.score("another", 0.0) == 0.0


def test_every_received_message_is_counted_once_by_outcome() -> None:
    """A copy of a rejected message blames its forwarder, but is no second rejection."""
    limits = TransportLimits(max_message_bytes=4)
    harness = IntakeHarness(
        {b"good": Verdict.ACCEPT, b"bad": Verdict.REJECT, b"late": Verdict.IGNORE}, limits
    )
    for data in (b"good", b"good", b"bad", b"bad", b"bad", b"late", b"too long"):
        harness.process(data)
    harness.process(b"good", topic="a topic of others")
    counted = {name: count for name, count in harness.counters.snapshot().items() if count}
    outcomes = {"accepted": 1, "ignored": 1, "rejected": 1, "duplicates": 3, "oversize": 1}
    assert counted == {"received": sum(outcomes.values()), **outcomes}
    assert harness.scores.score("peer", 0.0) == 4 * Severity.MID.value


def test_an_ignored_message_has_no_penalty_and_is_validated_again_later() -> None:
    harness = IntakeHarness({b"early": Verdict.IGNORE})
    assert not harness.process(b"early")
    assert not harness.process(b"early", now=4.9)
    harness.verdicts[b"early"] = Verdict.ACCEPT
    assert harness.process(b"early", now=5.0)
    assert harness.validated == [(b"early", "peer")] * 2
    assert harness.scores.score("peer", 5.0) == 0.0


def test_each_forwarder_of_an_ignored_message_is_tried_and_none_twice_in_a_row() -> None:
    """The first one may be an attacker that withholds what the message lacks."""
    harness = IntakeHarness({b"early": Verdict.IGNORE})
    forwarders = ("mallory", "bob", "mallory", "carol", "bob", "dave")
    for number, forwarder in enumerate(forwarders):
        assert not harness.process(b"early", forwarder, now=number / 2)
    assert [forwarder for _, forwarder in harness.validated] == ["mallory", "bob", "carol", "dave"]
    assert harness.intake.knows(message_id("topic", b"early"), 3.0)  # so it is asked for nowhere
    harness.verdicts[b"early"] = Verdict.ACCEPT
    assert harness.process(b"early", "erin", now=3.0)
    assert not harness.process(b"early", "frank", now=3.0)


def test_repeating_ignored_messages_costs_a_node_no_more_than_new_ones() -> None:
    """The attacker knows when an id is forgotten; what bounds it is the rate of a connection."""
    rate, seconds = int(TransportLimits().messages.per_second), 30

    def validated(different: int) -> int:
        messages = [b"%d" % number for number in range(different)]
        harness = IntakeHarness(dict.fromkeys(messages, Verdict.IGNORE))
        for number in range(rate * seconds):
            harness.process(messages[number % different], now=number // rate)
        return len(harness.validated)

    assert [validated(different) for different in (1, rate, 5 * rate, rate * seconds)] == [
        6,
        6 * rate,
        rate * seconds,
        rate * seconds,
    ]


@pytest.mark.parametrize("verdict", [Verdict.REJECT, RemoteProtocolError(Rule.ENVELOPE_KEYS, "no")])
def test_a_rejected_message_penalises_every_forwarder_and_is_validated_once(verdict: Any) -> None:
    harness = IntakeHarness({b"bad": verdict})
    assert not harness.process(b"bad", "first")
    assert not harness.process(b"bad", "second")
    assert harness.validated == [(b"bad", "first")]
    penalty = Severity.MID.value
    assert [harness.scores.score(peer, 0.0) for peer in ("first", "second")] == [penalty, penalty]


def test_a_peer_that_keeps_sending_rejected_messages_is_disconnected() -> None:
    harness = IntakeHarness({bytes([number]): Verdict.REJECT for number in range(10)})
    for number in range(10):
        harness.process(bytes([number]))
    assert harness.disconnected == ["peer"] * 7  # from the fourth on: four times five is the threshold
    assert harness.counters.bans == 1


def test_a_bug_of_the_validator_is_reported_without_penalty() -> None:
    bug = KeyError("ours")
    harness = IntakeHarness({b"odd": bug})
    assert not harness.process(b"odd")
    assert harness.bugs == [bug]
    assert (harness.counters.bugs, harness.scores.score("peer", 0.0)) == (1, 0.0)


def test_an_invalid_copy_does_not_shadow_the_valid_message() -> None:
    harness = IntakeHarness({b"message": Verdict.ACCEPT, b"messagf": Verdict.REJECT})
    assert not harness.process(b"messagf")
    assert harness.process(b"message")


def test_a_copy_on_the_wrong_topic_does_not_shadow_the_valid_message() -> None:
    harness = IntakeHarness({b"message": Verdict.ACCEPT})
    harness.intake.subscribe("other", lambda *_: Verdict.REJECT)
    assert not harness.process(b"message", topic="other")
    assert harness.process(b"message")


def test_an_oversize_message_is_refused_before_it_is_validated() -> None:
    harness = IntakeHarness({}, TransportLimits(max_message_bytes=4))
    assert not harness.process(b"12345")
    assert harness.validated == []
    assert harness.counters.oversize == 1
    assert harness.scores.score("peer", 0.0) == Severity.MID.value


def test_unknown_topics_are_not_counted() -> None:
    harness = IntakeHarness({})
    assert not harness.process(b"x", topic="invented")
    assert harness.counters == TransportCounters()


def test_own_messages_come_back_as_duplicates() -> None:
    harness = IntakeHarness({})
    assert harness.intake.remember_own("topic", b"mine", 0.0)
    assert not harness.process(b"mine")
    assert harness.validated == []
    assert harness.intake.knows(message_id("topic", b"mine"), 1.0)


def test_a_topic_has_one_validator() -> None:
    harness = IntakeHarness({})
    with pytest.raises(ValueError, match="already has a validator"):
        harness.intake.subscribe("topic", harness.validate)


@pytest.mark.parametrize("vector", load("derivations")["message_ids"], ids=lambda vector: vector["id"][:8])
def test_message_ids_are_those_of_the_vectors(vector: dict[str, str]) -> None:
    assert message_id(vector["topic"], bytes.fromhex(vector["data"])).hex() == vector["id"]
