"""Findings that need time: a chain without new blocks, epochs that nobody settles, rounds that are not
shared, and steps that are undone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio
from support.health_chain import begin_with_chain
from support.health_trial import Begin, require_row
from support.ledger import BOB, address
from support.nodes import manifest_of
from trio.testing import MockClock

from sapo_client.observe.assessments.steps import STEPS
from sapo_client.observe.health import INTERVAL_SECONDS
from sapo_protocol.suite import Suite

EPOCH_SECONDS = 3600


async def test_a_chain_that_stops_after_making_blocks_steadily(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """As a stuck endpoint does; a chain that makes blocks only with transactions is not reported."""
    on_chain = begin_with_chain(begin, weekdays, tmp_path)
    trial, account = on_chain.trial, on_chain.trial.home.identity.account
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(account)
        await trial.start(nursery)
        trial.pass_by(900)  # nothing happens on the chain, which is none that makes blocks steadily
        await trial.rounds(1)
        assert "chain_stalled" not in await trial.codes()
        for _ in range(7):
            await on_chain.send_coins(account)
            trial.pass_by(120)
            await trio.sleep(1)  # of the mock clock: the node looks at the chain
        assert "chain_stalled" not in await trial.codes()
        trial.pass_by(330)
        told = await trial.until_told("chain_stalled")
        assert all(told.everywhere.values()), told
        require_row(told.row())
        await on_chain.send_coins(account)
        trial.pass_by(40)
        await trial.until_over("chain_stalled")
        await trial.stop()
    on_chain.chain.close()


async def test_blocks_that_are_never_settled_explain_why_nothing_is_shared(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    on_chain = begin_with_chain(begin, weekdays, tmp_path, confirmations=900)
    trial = on_chain.trial
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(address(BOB))  # not to the node: its registration would be a late block
        await trial.start(nursery)
        trial.pass_by(30)
        await trial.until_status(lambda _: bool(trial.home.events("training_privately")))
        trial.pass_by(150)
        told = await trial.until_told("not_sharing")
        assert all(told.everywhere.values()), told
        require_row(told.row())
        await trial.stop()
    on_chain.chain.close()


async def test_a_swarm_whose_auditors_are_gone(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    on_chain = begin_with_chain(begin, weekdays, tmp_path, epoch_seconds=EPOCH_SECONDS)
    trial, account = on_chain.trial, on_chain.trial.home.identity.account
    async with trio.open_nursery() as nursery:
        await on_chain.send_coins(account)
        await trial.start(nursery)
        for _ in range(6):
            await trial.rounds(1)
            assert "not_settled" not in await trial.codes()
            trial.suspend(EPOCH_SECONDS)
            await on_chain.send_coins(account)
            trial.pass_by(30)  # the ledger's announcements are read again
        trial.pass_by(40)
        await trial.rounds(1)
        trial.pass_by(140)
        told = await trial.until_told("not_settled")
        assert all(told.everywhere.values()), told
        require_row(told.row())
        current = (await trial.home.get("status"))["epoch"]
        await trio.to_thread.run_sync(partial(on_chain.contracts.settle, current - 1, {account: 1}))
        await trial.until_over("not_settled")
        await trial.stop()
    on_chain.chain.close()


async def test_steps_that_are_undone(mock_clock: MockClock, begin: Begin, weekdays: Suite) -> None:
    """A node's own last step, reported undone; what undoes one is in the tests of the trainer."""
    trial = begin(manifest_of(weekdays, epoch_seconds=36_000))
    async with trio.open_nursery() as nursery:
        node = await trial.start(nursery)
        await trial.rounds(2)
        step = {**trial.home.events("step")[-1], "undone": True}
        for name in ("time", "seq", "event"):
            del step[name]
        for _ in range(STEPS):
            node._context.events.write("step", **step)
        trial.pass_by(INTERVAL_SECONDS)  # it is assessed before the next steps
        told = await trial.until_told("steps_undone")
        assert all(told.everywhere.values()), told
        await trial.rounds(STEPS)
        await trial.until_over("steps_undone")
        await trial.stop()
