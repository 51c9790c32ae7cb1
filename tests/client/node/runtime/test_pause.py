"""A pause stops training until it is revoked, or until the node drains."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from sapo_client.node.runtime.shutdown import Pause


async def test_a_pause_lasts_until_it_is_ended_or_the_node_drains() -> None:
    pause, draining = Pause(), trio.Event()
    await pause.wait_until_over(draining)
    ended: list[str] = []

    async def wait(name: str) -> None:
        await pause.wait_until_over(draining)
        ended.append(name)

    async with trio.open_nursery() as nursery:
        pause.set(True)
        pause.set(True)
        nursery.start_soon(wait, "first")
        await wait_all_tasks_blocked()
        assert (ended, pause.holds) == ([], True)
        pause.set(False)
        await wait_all_tasks_blocked()
        assert (ended, pause.holds) == (["first"], False)
        pause.set(False)
        pause.set(True)
        nursery.start_soon(wait, "second")
        await wait_all_tasks_blocked()
        draining.set()
        await wait_all_tasks_blocked()
        assert ended == ["first", "second"]
