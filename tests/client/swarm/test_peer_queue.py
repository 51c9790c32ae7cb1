"""What waits for one peer: own items first, others in turns, within a number of items and of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.fair_queue import PeerQueue
from sapo_client.swarm.limits import Rate, TransportLimits

LIMITS = TransportLimits(
    messages=Rate(1, 1),
    bytes=Rate(50, 50),  # an author's turn
    outbound_queue=8,
    forwarded_share=7 / 8,
    outbound_bytes=1000,
    control_bytes=200,
)
MOST_BYTES = 1200

Item = tuple[str, int]
"""A name and the item's bytes."""

SIZES = st.sampled_from((1, 49, 50, 51, 300, 700))
STEPS = st.lists(
    st.one_of(
        st.just("pop"),
        st.tuples(st.just("own"), SIZES),
        st.tuples(st.sampled_from("abc"), SIZES),
    ),
    max_size=60,
)


def opened() -> PeerQueue[Item]:
    return PeerQueue(LIMITS, lambda item: item[1])


def emptied(queue: PeerQueue[Item]) -> list[str]:
    found = []
    while (item := queue.pop()) is not None:
        found.append(item[0])
    return found


def filled(queue: PeerQueue[Item], author: str, *sizes: int) -> None:
    for number, size in enumerate(sizes):
        assert queue.push(author, (f"{author}{number}", size)) == []


def test_own_items_come_before_those_of_others_which_take_turns() -> None:
    queue = opened()
    filled(queue, "a", 50, 50)
    filled(queue, "b", 50)
    assert queue.push_own(("own0", 50))
    assert queue.push_own(("own1", 50))
    assert len(queue) == 5
    assert emptied(queue) == ["own0", "own1", "a0", "b0", "a1"]
    assert len(queue) == 0


def test_a_small_item_costs_its_author_a_whole_turn() -> None:
    queue = opened()
    filled(queue, "a", 1, 1, 1)
    filled(queue, "b", 1)
    assert emptied(queue) == ["a0", "b0", "a1", "a2"]


def test_of_too_many_items_the_newest_of_the_longest_flow_is_removed() -> None:
    queue = opened()
    filled(queue, "a", *[10] * 7)
    assert queue.push("b", ("b0", 10)) == [("a6", 10)]
    assert queue.push("a", ("a7", 10)) == [("a7", 10)]
    assert emptied(queue) == ["a0", "b0", "a1", "a2", "a3", "a4", "a5"]


def test_bytes_are_made_free_at_the_cost_of_the_largest_flow() -> None:
    queue = opened()
    filled(queue, "a", 300, 300, 200)
    filled(queue, "b", 200)
    assert queue.push("b", ("b1", 700)) == [("b1", 700)]
    assert queue.push("c", ("c0", 400)) == [("a2", 200), ("a1", 300)]
    assert emptied(queue) == ["b0", "a0", "c0"]


def test_own_items_above_the_bytes_of_others_do_not_empty_the_queue() -> None:
    """They may take more than is left, and then every further item would remove all that wait."""
    queue = opened()
    filled(queue, "a", 100, 100, 100)
    assert queue.push_own(("own", 850))
    assert queue.push("b", ("b0", 50)) == [("a2", 100)]
    assert queue.push("b", ("b1", 150)) == [("a1", 100), ("b1", 150)]


@pytest.mark.parametrize(("waiting", "size", "fits"), [(1, MOST_BYTES - 1, True), (1, MOST_BYTES, False)])
def test_own_items_have_more_bytes_than_others(waiting: int, size: int, fits: bool) -> None:
    queue = opened()
    filled(queue, "a", waiting)
    assert queue.push_own(("own", size)) is fits
    assert len(queue) == 1 + fits


def test_own_items_have_the_whole_number_of_places() -> None:
    queue = opened()
    filled(queue, "a", *[1] * 7)
    assert [queue.push_own((f"own{number}", 1)) for number in range(2)] == [True, False]
    assert len(queue) == 8


def test_what_is_taken_over_is_not_limited() -> None:
    queue = opened()
    queue.take_over([(f"own{number}", 900) for number in range(9)], [("a", ("a0", 900)), ("b", ("b0", 900))])
    assert len(queue) == 11
    assert not queue.push_own(("own", 1))
    assert emptied(queue) == [*(f"own{number}" for number in range(9)), "a0", "b0"]


@given(STEPS)
def test_every_item_comes_out_once_or_is_removed_and_its_bytes_are_free_again(
    steps: list[str | tuple[str, int]],
) -> None:
    queue, left = opened(), set[Item]()
    for number, step in enumerate(steps):
        if isinstance(step, str):
            item = queue.pop()
            assert (item is None) == (not left)
            left -= {item} if item is not None else set()
            continue
        kind, item = step[0], (f"{step[0]}{number}", step[1])
        if kind != "own":
            removed = queue.push(kind, item)
            left = (left | {item}) - set(removed)
            assert item not in removed[:-1]
        elif queue.push_own(item):
            left.add(item)
        else:
            assert len(left) >= LIMITS.outbound_queue or sum(size for _, size in left) + item[1] > MOST_BYTES
        assert len(queue) == len(left)
    assert sorted(emptied(queue)) == sorted(name for name, _ in left)
    assert queue.push_own(("all of it", MOST_BYTES))
