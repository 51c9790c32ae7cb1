"""Memory of message ids: bounded in number and in time."""

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.intake import SeenIds

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
