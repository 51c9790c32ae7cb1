"""Islands in the requests of an auditor that carries more than fit into one request."""

from __future__ import annotations

from collections import Counter

import pytest

from sapo_client.node.gossip.island_turns import IslandTurns
from sapo_protocol.islands.address_record import MAX_ASKED_ISLANDS


def test_a_node_with_few_islands_requests_all_of_them() -> None:
    turns = IslandTurns()
    assert [turns.next({3, 1}, {1: 5}) for _ in range(3)] == [(1, 3)] * 3
    assert turns.next(range(8), {}) == tuple(range(8))


@pytest.mark.parametrize("islands", [16, 64, 200])
def test_every_island_is_requested_including_empty_ones(islands: int) -> None:
    turns, empty = IslandTurns(), range(8)
    members = dict.fromkeys(range(8, islands), 16)
    asked: Counter[int] = Counter()
    for _ in range(islands // (MAX_ASKED_ISLANDS // 2)):
        asked.update(turns.next(range(islands), members))
    assert asked.keys() == set(range(islands))
    assert min(asked[island] for island in empty) >= max(asked[island] for island in range(8, islands))


def test_the_islands_with_fewest_members_are_asked_for_first() -> None:
    turns = IslandTurns()
    members = {island: 16 - island % 16 for island in range(64)}
    poorest = {island for island in range(64) if members[island] == 1}
    assert poorest <= set(turns.next(range(64), members))


def test_an_island_that_is_carried_again_is_requested_at_once() -> None:
    turns = IslandTurns()
    for _ in range(4):
        turns.next(range(16), {})
    turns.next(range(1, 16), {})
    assert 0 in turns.next(range(16), {})
