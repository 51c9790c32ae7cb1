"""The checker pool: honest rollouts are checked, hostile ones fail at most their own check."""

from pathlib import Path

import pytest
import trio
from support.exploits import completion, offer_exploits

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.suite import Suite
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import Checked, CheckerPool, CheckFailed, Failure
from sapo_verification.suites.catalogue import FAMILIES, LEVELS, REASONING_GYM, family
from sapo_verification.tasks.generators import Underivable, derive, solution


def every_family(level: str) -> Suite:
    return Suite(REASONING_GYM, tuple(family(name, level) for name in FAMILIES), Digest(bytes(32)))


@pytest.mark.parametrize("level", LEVELS)
async def test_honest_rollouts_of_every_family_get_the_expected_rewards(level: str) -> None:
    suite = every_family(level)
    async with trio.open_nursery() as nursery:
        pool = CheckerPool(suite, deadline_seconds=20)
        await nursery.start(pool.run)
        for place, each in enumerate(suite.families):
            for seed in range(0, 2**31, 2**31 // 60):
                try:
                    item = derive(each, seed)
                except Underivable:
                    with pytest.raises(CheckFailed, match="underivable"):
                        await pool.prompt(Task(place, seed))
                    continue
                answer = solution(each, item)
                group = [b"", completion(suite, place, "no idea"), completion(suite, place, answer or "-")]
                checked = await pool.check(Task(place, seed), group)
                assert checked == Checked(item.prompt, (0.0, 0.0, 0.0 if answer is None else 1.0))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("level", LEVELS)
async def test_no_exploit_succeeds_in_any_family(level: str, tmp_path: Path) -> None:
    suite = every_family(level)
    honest: dict[int, tuple[int, str]] = {}
    for place, each in enumerate(suite.families):
        found = ((seed, solution(each, derive(each, seed))) for seed in range(9))
        honest[place] = next((seed, answer) for seed, answer in found if answer)
    await offer_exploits(suite, honest, tmp_path)


async def test_many_callers_share_the_workers() -> None:
    suite = every_family("nano")
    wanted = [derive(suite.families[place % 9], place).prompt for place in range(90)]
    found: dict[int, str] = {}
    async with trio.open_nursery() as nursery:
        pool = CheckerPool(suite, workers=2, deadline_seconds=20)
        await nursery.start(pool.run)

        async def ask(place: int) -> None:
            found[place] = await pool.prompt(Task(place % 9, place))

        async with trio.open_nursery() as callers:
            for place in range(90):
                callers.start_soon(ask, place)
        nursery.cancel_scope.cancel()
    assert [found[place] for place in range(90)] == wanted


async def test_a_cancelled_request_does_not_affect_later_ones() -> None:
    suite = every_family("nano")
    async with trio.open_nursery() as nursery:
        pool = CheckerPool(suite, deadline_seconds=20)
        await nursery.start(pool.run)
        for seed in range(30):
            with trio.CancelScope() as scope:
                scope.cancel()
                await pool.prompt(Task(3, seed))
            with trio.move_on_after(0.0003):
                await pool.prompt(Task(3, seed))
            assert await pool.prompt(Task(1, seed)) == derive(suite.families[1], seed).prompt
        nursery.cancel_scope.cancel()


async def test_a_closed_pool_raises() -> None:
    pool = CheckerPool(every_family("nano"))
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        nursery.cancel_scope.cancel()
    with pytest.raises(CheckFailed) as caught:
        await pool.prompt(Task(0, 0))
    assert caught.value.reason is Failure.CLOSED


@pytest.mark.parametrize("task", [Task(-1, 0), Task(9, 0), Task(0, -1), Task(0, 2**31)])
async def test_a_task_outside_the_suite_is_a_local_error(task: Task) -> None:
    with pytest.raises(LocalProtocolError):
        await CheckerPool(every_family("nano")).prompt(task)


async def test_a_deadline_that_no_call_meets_ends_the_start() -> None:
    """A pool whose first test call times out never reports ready."""
    pool = CheckerPool(every_family("nano"), deadline_seconds=0.0)
    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
    assert caught.group_contains(LocalProtocolError, match="did not start")
