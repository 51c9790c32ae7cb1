"""Flows of a queue take turns, keep their order, and the longest loses where room is short."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from sapo_client.swarm.fair_queue import FairQueue, newest_in_turns

FLOWS = st.sampled_from("abc")
STEPS = st.lists(st.one_of(st.none(), st.just("drop"), st.tuples(FLOWS, st.integers(1, 7))), max_size=80)


@given(STEPS)
def test_every_item_comes_out_once_in_the_order_of_its_flow(
    steps: list[str | tuple[str, int] | None],
) -> None:
    """None takes an item out, ``drop`` removes one. A model keeps a list of each flow."""
    queue: FairQueue[tuple[str, int]] = FairQueue(2)
    held: dict[str, list[tuple[tuple[str, int], int]]] = defaultdict(list)
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            flow, cost = step
            queue.push(flow, (flow, number), cost)
            held[flow].append(((flow, number), cost))
        elif (item := queue.pop() if step is None else queue.drop()) is None:
            assert not any(held.values())
        elif step is None:
            assert held[item[0]].pop(0)[0] == item
        else:
            costs = {flow: sum(cost for _, cost in items) for flow, items in held.items()}
            assert costs[item[0]] == max(costs.values())
            assert held[item[0]].pop()[0] == item
        assert len(queue) == sum(map(len, held.values()))


@given(st.dictionaries(FLOWS, st.lists(st.integers(1, 7), min_size=20, max_size=40), min_size=2))
def test_flows_that_wait_get_equal_shares(costs: dict[str, list[int]]) -> None:
    """As long as all have items, no flow is ahead of another by more than a turn and one item."""
    queue: FairQueue[tuple[str, int]] = FairQueue(3)
    for flow, each in costs.items():
        for cost in each:
            queue.push(flow, (flow, cost), cost)
    sent: Counter[str] = Counter()
    left = {flow: len(each) for flow, each in costs.items()}
    while all(left.values()):
        item = queue.pop()
        assert item is not None
        sent[item[0]] += item[1]
        left[item[0]] -= 1
        assert max(sent[flow] for flow in costs) - min(sent[flow] for flow in costs) <= 2 * 3 + 7


def test_a_quiet_flow_waits_for_one_round_only() -> None:
    queue: FairQueue[str] = FairQueue(1)
    for number in range(100):
        for flow in "ab":
            queue.push(flow, f"{flow}{number}", 1)
    queue.push("quiet", "quiet", 1)
    assert [queue.pop() for _ in range(4)] == ["a0", "b0", "quiet", "a1"]


def test_of_too_many_the_newest_of_each_flow_are_chosen() -> None:
    items = [*(f"a{number}" for number in range(9)), "b0", "b1", *(f"a{number}" for number in range(9, 12))]
    assert newest_in_turns(items, lambda item: item[0], 5) == ["b0", "b1", "a9", "a10", "a11"]
    assert newest_in_turns(items[:3], lambda item: item[0], 5) == ["a0", "a1", "a2"]
