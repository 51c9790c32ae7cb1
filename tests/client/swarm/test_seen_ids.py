"""Memory of message ids: bounded in number and in time."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.intake import MAX_REMEMBERED, REMEMBERED_SECONDS, FirstArrivals, SeenIds

TOPIC = "rollouts"
STEPS = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 30, allow_nan=False)), max_size=200)


@given(STEPS)
def test_agrees_with_a_list_of_everything_that_was_added(steps: list[tuple[int, float]]) -> None:
    memory = SeenIds(max_ids=1000, lifetime_seconds=60)
    added: dict[int, float] = {}
    now = 0.0
    for number, pause_seconds in steps:
        known = number in added and now - added[number] < 60
        assert memory.has(bytes([number]), now) == known
        memory.add(bytes([number]), now)
        if not known:
            added[number] = now
        now += pause_seconds


@given(STEPS)
def test_never_holds_more_than_its_bound_and_keeps_the_newest(steps: list[tuple[int, float]]) -> None:
    memory = SeenIds(max_ids=8, lifetime_seconds=1e9)
    for number, _ in steps:
        memory.add(bytes([number]), 0.0)
        assert len(memory) <= 8
        assert memory.has(bytes([number]), 0.0)


def test_the_first_arrival_of_a_message_is_remembered_for_a_time() -> None:
    arrivals = FirstArrivals()
    assert arrivals.first_seconds(TOPIC, b"a", 10.0) is None
    arrivals.note(TOPIC, b"a", 10.0)
    arrivals.note(TOPIC, b"a", 11.0)
    times = (10.0, 20.0, 5.0, 10.0 + REMEMBERED_SECONDS)  # the third one after the clock was set back
    assert [arrivals.first_seconds(TOPIC, b"a", now) for now in times] == [10.0, 10.0, 5.0, None]
    assert arrivals.first_seconds("another topic", b"a", 20.0) is None


def test_arrivals_are_remembered_of_the_newest_messages() -> None:
    arrivals = FirstArrivals()
    for number in range(MAX_REMEMBERED + 1):
        arrivals.note(TOPIC, b"%d" % number, 10.0)
    known = [arrivals.first_seconds(TOPIC, b"%d" % number, 10.0) for number in (0, 1, MAX_REMEMBERED)]
    assert known == [None, 10.0, 10.0]
