"""Scoring in the experiment's own process gives the same results as the jail."""

from __future__ import annotations

import pytest
import trio

from sapo_client.lab.checker import LocalChecker
from sapo_protocol.suite import Family, Suite
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckerPool, CheckFailed
from sapo_verification.jail.messages import Checked, Failure
from sapo_verification.suites.catalogue import FAMILIES, family, suite
from sapo_verification.tasks.generators import Underivable, derive, solution

SEEDS = range(100, 108)


def answers(chosen: Family, seed: int) -> tuple[bytes, ...]:
    """Return right, wrong, malformed and empty completions of a task."""
    try:
        text = solution(chosen, derive(chosen, seed)) or "0"
    except Underivable:
        text = "0"
    right = text if chosen.answer == "plain" else f"so it is <answer>{text}</answer>"
    return right.encode(), f"it is {text}".encode(), b"<answer>12</answer>", b"17", b"\xff", b""


@pytest.mark.parametrize("level", ["nano", "full"])
async def test_the_local_checker_gives_the_results_of_the_jail(level: str) -> None:
    chosen = suite(level)
    local, found = LocalChecker(chosen.families), dict[Task, Checked | Failure]()
    tasks = [Task(index, seed) for index in range(len(FAMILIES)) for seed in SEEDS]
    pool = CheckerPool(chosen, deadline_seconds=60.0)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        for task in tasks:
            found[task] = await outcome(pool, chosen, task)
        nursery.cancel_scope.cancel()
    assert {task: await outcome(local, chosen, task) for task in tasks} == found
    rewards = [reply.rewards for reply in found.values() if isinstance(reply, Checked)]
    assert sum(each[0] for each in rewards) > len(rewards) / 2, "most honest answers are right"
    assert {reply for reply in found.values() if isinstance(reply, Failure)} <= {Failure.UNDERIVABLE}


async def outcome(checker: CheckerPool | LocalChecker, chosen: Suite, task: Task) -> Checked | Failure:
    try:
        return await checker.check(task, answers(chosen.families[task.family], task.seed))
    except CheckFailed as failed:
        return failed.reason


async def test_the_prompt_equals_that_of_a_check() -> None:
    checker = LocalChecker((family("calendar_arithmetic", "nano"),))
    checked = await checker.check(Task(0, 3), (b"x",))
    assert await checker.prompt(Task(0, 3)) == checked.prompt
