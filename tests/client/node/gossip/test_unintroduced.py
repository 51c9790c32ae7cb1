"""Messages that wait for their author's certificate: bounded, and no author displaces another's."""

from sapo_client.node.gossip.unintroduced import (
    KEPT_SECONDS,
    MAX_BYTES,
    MAX_OF_A_FORWARDER,
    UnintroducedMessages,
)
from sapo_protocol.identifiers import NodeId

CAROL, DAVE = NodeId(b"\x01" * 32), NodeId(b"\x02" * 32)
TOPIC = "rollouts"


def taken(waiting: UnintroducedMessages, node: NodeId, now_seconds: float) -> list[tuple[str, bytes, str]]:
    return [(each.topic, each.message, each.forwarder) for each in waiting.take(node, now_seconds)]


def test_waiting_messages_are_taken_once_and_in_order() -> None:
    waiting = UnintroducedMessages()
    for message, node in ((b"a", CAROL), (b"b", DAVE), (b"c", CAROL), (b"a", CAROL)):
        waiting.add(TOPIC, message, "bob", node, 0.0)
    assert taken(waiting, CAROL, 1.0) == [(TOPIC, b"a", "bob"), (TOPIC, b"c", "bob")]
    assert taken(waiting, CAROL, 1.0) == []
    assert taken(waiting, DAVE, 1.0) == [(TOPIC, b"b", "bob")]


def test_messages_that_wait_too_long_are_dropped() -> None:
    waiting = UnintroducedMessages()
    waiting.add(TOPIC, b"a", "bob", CAROL, 0.0)
    waiting.add(TOPIC, b"b", "bob", CAROL, 1.0)
    assert taken(waiting, CAROL, KEPT_SECONDS) == [(TOPIC, b"b", "bob")]
    assert len(waiting) == 0


def test_the_busiest_forwarder_loses_its_own_oldest_entries() -> None:
    """A flood of messages of invented authors leaves an honest forwarder's in place."""
    waiting = UnintroducedMessages()
    waiting.add(TOPIC, b"honest", "bob", CAROL, 0.0)
    for number in range(1000):
        waiting.add(TOPIC, b"%d" % number, "mallory", DAVE, 1.0)
    assert len(waiting) == MAX_OF_A_FORWARDER + 1
    for number in range(100):
        waiting.add(TOPIC, b"%d" % number + bytes(MAX_BYTES // 4), f"mallory {number % 5}", DAVE, 2.0)
    assert len(waiting) < 30
    assert taken(waiting, CAROL, 3.0) == [(TOPIC, b"honest", "bob")]
    left = waiting.take(DAVE, 3.0)
    assert sum(len(each.message) for each in left) <= MAX_BYTES
    assert len(waiting) == 0


def test_messages_above_the_size_limit_are_not_kept() -> None:
    waiting = UnintroducedMessages()
    waiting.add(TOPIC, bytes(MAX_BYTES + 1), "bob", CAROL, 0.0)
    waiting.add(TOPIC, bytes(MAX_BYTES), "bob", CAROL, 0.0)
    assert [len(each.message) for each in waiting.take(CAROL, 0.0)] == [MAX_BYTES]


def test_a_message_is_kept_while_one_of_its_forwarders_has_a_place_for_it() -> None:
    waiting = UnintroducedMessages()
    for forwarder in ("mallory", "bob", "bob"):
        waiting.add(TOPIC, b"honest", forwarder, CAROL, 0.0)
    for number in range(MAX_OF_A_FORWARDER):
        waiting.add(TOPIC, b"%d" % number, "mallory", DAVE, 1.0)
    assert len(waiting) == MAX_OF_A_FORWARDER + 1
    assert taken(waiting, CAROL, 2.0) == [(TOPIC, b"honest", "mallory")]
    for number in range(MAX_OF_A_FORWARDER):
        waiting.add(TOPIC, b"later %d" % number, "bob", DAVE, 2.0)
    assert len(waiting.take(DAVE, 3.0)) == 2 * MAX_OF_A_FORWARDER
    assert len(waiting) == 0


def test_a_message_evicted_by_all_its_forwarders_is_dropped() -> None:
    waiting = UnintroducedMessages()
    for forwarder in ("mallory", "bob"):
        waiting.add(TOPIC, b"honest", forwarder, CAROL, 0.0)
        for number in range(MAX_OF_A_FORWARDER):
            waiting.add(TOPIC, b"%d" % number, forwarder, DAVE, 1.0)
    assert taken(waiting, CAROL, 2.0) == []
    assert len(waiting) == MAX_OF_A_FORWARDER  # the same messages of both
