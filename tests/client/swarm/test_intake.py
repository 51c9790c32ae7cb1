"""One message's way from the wire to the node: judged once, three outcomes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.intake import Intake, message_id
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_score import PeerScores, Severity
from sapo_client.swarm.transport import Inbound
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule


class Desk:
    """An intake with a judge that looks its verdicts up and counts its work."""

    def __init__(self, verdicts: dict[bytes, Any], limits: TransportLimits | None = None) -> None:
        self.counters, self.bugs, self.expelled = TransportCounters(), list[Exception](), list[str]()
        self.scores = PeerScores()
        discipline = Discipline(self.scores, self.counters, self.expelled.append)
        self.intake = Intake(limits or TransportLimits(), discipline, self.counters, self.bugs.append)
        self.verdicts, self.judged = verdicts, list[bytes]()
        self.channel = self.intake.subscribe("topic", self.judge)

    def judge(self, data: bytes, _forwarder: str) -> Verdict:
        self.judged.append(data)
        verdict = self.verdicts[data]
        if isinstance(verdict, Exception):
            raise verdict
        return Verdict(verdict)

    def take(self, data: bytes, forwarder: str = "peer", now: float = 0.0, topic: str = "topic") -> bool:
        return self.intake.take(topic, data, forwarder, now)

    def delivered(self) -> list[Inbound]:
        return [self.channel.receive_nowait() for _ in range(self.channel.statistics().current_buffer_used)]


def test_accepted_is_delivered_and_forwarded_once() -> None:
    desk = Desk({b"good": Verdict.ACCEPT})
    assert [desk.take(b"good"), desk.take(b"good", "another"), desk.take(b"good")] == [True, False, False]
    assert desk.delivered() == [Inbound("topic", b"good", "peer")]
    assert desk.judged == [b"good"]
    assert desk.scores.score("another", 0.0) == 0.0


def test_every_message_received_has_one_fate() -> None:
    """A copy of a rejected message blames its forwarder, but is no second rejection."""
    limits = TransportLimits(max_message_bytes=4)
    desk = Desk({b"good": Verdict.ACCEPT, b"bad": Verdict.REJECT, b"late": Verdict.IGNORE}, limits)
    for data in (b"good", b"good", b"bad", b"bad", b"bad", b"late", b"too long"):
        desk.take(data)
    desk.take(b"good", topic="a topic of others")
    counted = {name: count for name, count in desk.counters.snapshot().items() if count}
    fates = {"accepted": 1, "ignored": 1, "rejected": 1, "duplicates": 3, "oversize": 1}
    assert counted == {"received": sum(fates.values()), **fates}
    assert desk.scores.score("peer", 0.0) == 4 * Severity.MID.value


def test_ignored_blames_nobody_and_is_judged_anew_later() -> None:
    desk = Desk({b"early": Verdict.IGNORE})
    assert not desk.take(b"early")
    assert not desk.take(b"early", now=4.9)
    desk.verdicts[b"early"] = Verdict.ACCEPT
    assert desk.take(b"early", now=5.0)
    assert desk.judged == [b"early", b"early"]
    assert desk.scores.score("peer", 5.0) == 0.0


@pytest.mark.parametrize("verdict", [Verdict.REJECT, RemoteProtocolError(Rule.ENVELOPE_KEYS, "no")])
def test_rejected_blames_every_forwarder_and_is_judged_once(verdict: Any) -> None:
    desk = Desk({b"bad": verdict})
    assert not desk.take(b"bad", "first")
    assert not desk.take(b"bad", "second")
    assert desk.judged == [b"bad"]
    penalty = Severity.MID.value
    assert [desk.scores.score(peer, 0.0) for peer in ("first", "second")] == [penalty, penalty]
    assert desk.delivered() == []


def test_a_peer_that_keeps_sending_rejected_messages_is_expelled() -> None:
    desk = Desk({bytes([number]): Verdict.REJECT for number in range(10)})
    for number in range(10):
        desk.take(bytes([number]))
    assert desk.expelled == ["peer"] * 7  # from the fourth on: four times five is the line
    assert desk.counters.bans == 1


def test_a_bug_of_the_judge_is_reported_and_blames_nobody() -> None:
    bug = KeyError("ours")
    desk = Desk({b"odd": bug})
    assert not desk.take(b"odd")
    assert desk.bugs == [bug]
    assert (desk.counters.bugs, desk.scores.score("peer", 0.0)) == (1, 0.0)


def test_an_invalid_copy_does_not_shadow_the_valid_message() -> None:
    desk = Desk({b"message": Verdict.ACCEPT, b"messagf": Verdict.REJECT})
    assert not desk.take(b"messagf")
    assert desk.take(b"message")


def test_a_copy_on_the_wrong_topic_does_not_shadow_the_valid_message() -> None:
    desk = Desk({b"message": Verdict.ACCEPT})
    desk.intake.subscribe("other", lambda *_: Verdict.REJECT)
    assert not desk.take(b"message", topic="other")
    assert desk.take(b"message")


def test_oversize_is_refused_before_it_is_judged() -> None:
    desk = Desk({}, TransportLimits(max_message_bytes=4))
    assert not desk.take(b"12345")
    assert desk.judged == []
    assert desk.counters.oversize == 1
    assert desk.scores.score("peer", 0.0) == Severity.MID.value


def test_what_the_node_is_too_slow_for_is_counted() -> None:
    desk = Desk({bytes([number]): Verdict.ACCEPT for number in range(5)}, TransportLimits(delivery_queue=3))
    assert all(desk.take(bytes([number])) for number in range(5))
    assert [inbound.data for inbound in desk.delivered()] == [b"\x00", b"\x01", b"\x02"]
    assert desk.counters.dropped_before_delivery == 2


def test_unknown_topics_leave_no_trace() -> None:
    desk = Desk({})
    assert not desk.take(b"x", topic="invented")
    assert desk.counters == TransportCounters()


def test_own_messages_come_back_as_duplicates() -> None:
    desk = Desk({})
    assert desk.intake.remember_own("topic", b"mine", 0.0)
    assert not desk.take(b"mine")
    assert desk.judged == []
    assert desk.intake.knows(message_id("topic", b"mine"), 1.0)


def test_one_judge_per_topic() -> None:
    desk = Desk({})
    with pytest.raises(ValueError, match="already has a judge"):
        desk.intake.subscribe("topic", desk.judge)


async def test_a_closed_channel_does_not_break_the_intake() -> None:
    desk = Desk({b"late": Verdict.ACCEPT})
    await desk.channel.aclose()
    assert desk.take(b"late")
    assert desk.counters.dropped_before_delivery == 1
    await trio.lowlevel.checkpoint()
