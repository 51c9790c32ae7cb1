"""Recent messages are kept for some heartbeats, within a number of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from libp2p.pubsub.pb.rpc_pb2 import RPC, Message

from sapo_client.swarm.intake import message_id
from sapo_client.swarm.p2p.message_cache import ContentCache

TOPIC = "topic"
ASKER = b"asker"


def message(number: int, size: int = 8) -> Message:
    return Message(topicIDs=[TOPIC], data=number.to_bytes(8, "big") + bytes(size - 8))


def identity(number: int, size: int = 8) -> bytes:
    return message_id(TOPIC, message(number, size).data)


def test_the_oldest_messages_are_dropped_beyond_the_bytes() -> None:
    cache = ContentCache(3, 30, max_bytes=40)
    for number in range(7):
        cache.put(message(number))
        cache.put(message(number))
        cache.shift()
    assert cache.recent(TOPIC) == [identity(number) for number in range(2, 7)]
    assert cache.get_for(identity(1), ASKER, max_times=3) is None
    assert cache.get_for(identity(2), ASKER, max_times=3) == RPC(publish=[message(2)])


def test_all_askers_get_one_object_each_a_few_times() -> None:
    cache = ContentCache(3, 30)
    sent = cache.to_rpc(message(0))
    assert cache.to_rpc(message(0)) is sent
    for asker in (ASKER, b"another"):
        for _ in range(3):
            assert cache.get_for(identity(0), asker, max_times=3) is sent
            cache.was_sent(identity(0), asker)
        assert cache.get_for(identity(0), asker, max_times=3) is None


def test_a_message_larger_than_all_is_not_kept() -> None:
    cache = ContentCache(3, 30, max_bytes=40)
    cache.put(message(0))
    cache.put(message(1, 41))
    assert cache.recent(TOPIC) == []
    assert cache.to_rpc(message(3, 41)) == RPC(publish=[message(3, 41)])  # and is sent all the same
    cache.put(message(2))
    assert cache.recent(TOPIC) == [identity(2)]


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(8, 30))), max_size=60))
def test_it_holds_the_newest_messages_that_fit(course: list[tuple[int, int] | None]) -> None:
    """None is a heartbeat. A model keeps what came within five of them, oldest first."""
    cache, held, beat = ContentCache(2, 5, max_bytes=60), dict[bytes, tuple[int, int]](), 0
    for step in course:
        if step is None:
            cache.shift()
            beat += 1
            held = {one: (since, size) for one, (since, size) in held.items() if since > beat - 5}
        else:
            cache.put(message(*step))
            held.setdefault(identity(*step), (beat, step[1]))
            while sum(size for _, size in held.values()) > 60:
                del held[next(iter(held))]
        assert cache.recent(TOPIC) == list(held)
        assert cache.window(TOPIC) == [
            one for age in (1, 0) for one, (since, _) in held.items() if since == beat - age
        ]
        assert cache.msgs.keys() == held.keys()
