"""Turns of peers that share a rate of rollouts: the most useful first, charged before it asks."""

import trio
import trio.testing

from sapo_client.node.gossip.arrival_turns import ArrivalTurns
from sapo_client.swarm.limits import Rate

RATE = Rate(per_second=2, burst=4)

Served = list[tuple[str, float]]


async def _take(turns: ArrivalTurns, served: Served, name: str, count: int, use: int) -> None:
    await turns.take(count, use)
    served.append((name, round(trio.current_time() - _BEGIN.get(), 3)))


_BEGIN: trio.lowlevel.RunVar[float] = trio.lowlevel.RunVar("begin")


async def _served(*asked: tuple[float, str, int, int]) -> Served:
    """Return who had a turn and when, of peers that ask (after seconds, name, count, use)."""
    turns, served = ArrivalTurns(RATE), []  # type: tuple[ArrivalTurns, Served]
    _BEGIN.set(trio.current_time())
    async with trio.open_nursery() as nursery:
        for after, name, count, use in asked:
            await trio.sleep_until(_BEGIN.get() + after)
            nursery.start_soon(_take, turns, served, name, count, use)
            await trio.testing.wait_all_tasks_blocked()
    return served


async def test_the_burst_is_there_at_once_and_then_the_rate(autojump_clock: trio.testing.MockClock) -> None:
    served = await _served((0, "a", 4, 0), (0, "b", 1, 0), (0, "c", 2, 0), (4, "d", 2, 0))
    assert served == [("a", 0), ("b", 0.5), ("c", 1.5), ("d", 4)]


async def test_who_is_more_useful_goes_first_and_equal_ones_in_their_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    served = await _served((0, "a", 4, 0), (0, "b", 2, 1), (0, "c", 2, 7), (0, "d", 2, 7), (0, "e", 2, -3))
    assert served == [("a", 0), ("c", 1), ("d", 2), ("b", 3), ("e", 4)]


async def test_who_comes_later_and_is_more_useful_overtakes_one_that_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    served = await _served((0, "a", 4, 0), (0, "b", 2, 1), (0.5, "c", 1, 2))
    assert served == [("a", 0), ("c", 0.5), ("b", 1.5)]


async def test_a_peer_waits_for_all_that_it_asks_for_though_one_behind_it_needs_less(
    autojump_clock: trio.testing.MockClock,
) -> None:
    served = await _served((0, "a", 4, 0), (0, "b", 4, 5), (0, "c", 1, 0))
    assert served == [("a", 0), ("b", 2), ("c", 2.5)]


async def test_what_was_not_sent_is_given_back(autojump_clock: trio.testing.MockClock) -> None:
    turns = ArrivalTurns(RATE)
    await turns.take(4, 0)
    turns.give_back(3)
    begin = trio.current_time()
    await turns.take(3, 0)
    first = trio.current_time() - begin
    await turns.take(1, 0)
    assert (first, round(trio.current_time() - begin, 3)) == (0, 0.5)


async def test_one_that_gives_up_lets_the_next_go(autojump_clock: trio.testing.MockClock) -> None:
    turns, served = ArrivalTurns(RATE), []  # type: tuple[ArrivalTurns, Served]
    _BEGIN.set(trio.current_time())
    await turns.take(4, 0)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            async with trio.open_nursery() as useful:
                useful.start_soon(_take, turns, served, "gives up", 4, 9)
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(_take, turns, served, "next", 4, 0)
    assert served == [("next", 2)]
