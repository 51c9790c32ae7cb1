"""Nodes whose clock is changed or not set yet: signatures, stored data, and exit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
from support.health_trial import Begin, HealthTrial, require_row
from support.ledger import BOB, address
from support.nodes import PATIENCE_SECONDS, Home, found_now, manifest_of, until
from trio.testing import MockClock

from sapo_client.observe.control_client import ControlClient
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.suite import Suite
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.signing.database import SigningDatabase
from sapo_verification.store import open_database

EPOCH_SECONDS = 3600
YEAR_SECONDS = 365 * 24 * 3600


def signed_in(home: Home) -> int:
    """Return the last epoch in which a node signed."""
    [mark] = SigningDatabase(home.data.database).marks()
    return mark.epoch


def kept(home: Home) -> set[int]:
    """Return the epochs of the rollouts that a node holds."""
    with closing(open_database(home.data.database)) as connection:
        held = [*EnvelopeStore(connection).latest(100_000)]
    return {parse_rollout(parse_envelope(data, home.manifest.swarm_id).payload).epoch for _, data in held}


async def test_a_clock_that_is_ahead_for_a_moment_costs_nothing(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """Meanwhile the node trains by itself; nothing is signed in an epoch far ahead, and nothing forgotten."""
    trial = begin(manifest_of(weekdays, epoch_seconds=EPOCH_SECONDS))
    home = trial.home
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.rounds(2)
        trial.skew = 100 * EPOCH_SECONDS
        told = await trial.until_told("clock_jumped")
        assert all(told.everywhere.values()), told
        require_row(told.row())
        trial.pass_by(20)
        await trial.until_status(lambda _: bool(home.events("training_privately")))
        await trial.rounds(3)
        assert (signed_in(home), kept(home)) == (0, {0})
        assert (await home.get("status"))["epoch"] == 0, "what admits, audits and counts stays there too"
        trial.skew = 0
        await trial.until_over("clock_jumped")
        shared = len(home.events("published"))
        await trial.until_status(lambda _: len(home.events("published")) > shared)
        assert signed_in(home) == 0
        assert {event["epoch"] for event in home.events("published")} == {0}
        await trial.stop()


@pytest.mark.long
async def test_a_clock_that_keeps_its_setting_is_trusted(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=EPOCH_SECONDS))
    home = trial.home
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.rounds(2)
        trial.skew = EPOCH_SECONDS
        await trial.until_told("clock_jumped")
        trial.pass_by(300)
        await trial.until_over("clock_jumped")
        await trial.until_status(lambda _: signed_in(home) == 1)
        await trial.stop()


@pytest.mark.long
async def test_a_new_block_of_the_same_time_shows_that_the_clock_was_set_right(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=EPOCH_SECONDS)
    chain = contracts.chain
    trial = begin(manifest, ledger={"rpc_urls": (chain.url,)})
    home = trial.home

    def send_coin() -> None:
        chain.send(BOB, home.identity.account, b"", value_wei=10**18)

    async def blocks() -> None:
        while True:
            chain.now_seconds = trial.now()
            await trio.to_thread.run_sync(send_coin)
            trial.pass_by(10)
            await trio.sleep(1)  # of the mock clock: the node looks at the chain

    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.rounds(2)
        trial.skew = EPOCH_SECONDS
        await trial.until_told("clock_jumped")
        nursery.start_soon(blocks)
        await trial.until_over("clock_jumped")
        await trial.stop()
        nursery.cancel_scope.cancel()
    chain.close()


async def test_a_paused_node_forgets_old_epochs(mock_clock: MockClock, begin: Begin, weekdays: Suite) -> None:
    trial = begin(manifest_of(weekdays, epoch_seconds=EPOCH_SECONDS))
    home = trial.home
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await trial.rounds(2)
        await trio.to_thread.run_sync(lambda: ControlClient(home.data).pause(paused=True))
        await until(lambda: home.events("paused"))
        assert kept(home) == {0}
        trial.pass_by(100 * EPOCH_SECONDS)
        await until(lambda: not kept(home))
        await trial.stop()


async def test_a_directory_that_signed_far_ahead_trains_alone_until_then(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    """Lower slots may be signed already, so the node reports this and waits; old epochs are forgotten."""
    trial = begin(manifest_of(weekdays, epoch_seconds=EPOCH_SECONDS))
    home = trial.home
    signing = SigningDatabase(home.data.database)
    signing.take_slots(home.manifest.swarm_id, home.identity.account, 40, count=1, slots_per_epoch=8)
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        told = await trial.until_told("signed_ahead")
        assert all(told.everywhere.values()), told
        require_row(told.row())
        trial.pass_by(20)
        await trial.rounds(3)
        assert home.events("service_failed", "published") == []
        trial.pass_by(39 * EPOCH_SECONDS)
        await trial.rounds(1)
        assert home.events("published") == []
        trial.pass_by(EPOCH_SECONDS)
        await trial.until_over("signed_ahead")
        await trial.until_status(lambda _: bool(home.events("published")))
        assert {event["epoch"] for event in home.events("published")} == {40}
        assert 0 not in {event["slot"] for event in home.events("published")}
        await trial.stop()


@pytest.mark.long
async def test_a_node_whose_chain_is_away_forgets_old_epochs(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=12)  # no call is overdue after twenty
    trial = begin(manifest, ledger={"rpc_urls": (contracts.chain.url,)})
    home = trial.home
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await until(lambda: kept(home))
        before = kept(home)
        await trio.to_thread.run_sync(contracts.chain.close)
        trial.pass_by(20 * 12)
        await until(lambda: not kept(home) & before)
        await trial.until_status(lambda _: bool(home.events("training_privately")))
        await trial.stop()


@asynccontextmanager
async def before_genesis(begin: Begin, weekdays: Suite) -> AsyncIterator[HealthTrial]:
    """Yield a node that was started a minute ago, with its clock a year behind that of the swarm."""
    trial = begin(manifest_of(weekdays, epoch_seconds=EPOCH_SECONDS))
    trial.skew = -YEAR_SECONDS
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        trial.pass_by(60)
        yield trial


async def test_a_node_started_before_its_clock_was_set_continues_once_it_is(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    async with before_genesis(begin, weekdays) as trial:
        assert trial.home.events("step") == []
        trial.skew = 0
        await trial.until_told("clock_jumped")
        trial.pass_by(300)
        await trial.rounds(1)
        assert signed_in(trial.home) == 0
        await trial.stop()


async def test_a_node_before_genesis_stops_on_request(
    mock_clock: MockClock, begin: Begin, weekdays: Suite
) -> None:
    async with before_genesis(begin, weekdays) as trial:
        with trio.fail_after(PATIENCE_SECONDS):
            await trial.stop()
    assert trial.home.events("stopped")


async def test_a_node_that_starts_with_its_clock_ahead_signs_nothing(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """The newest block of its chain is of an earlier epoch, and a new one is too: the clock is wrong."""
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=EPOCH_SECONDS)
    chain = contracts.chain
    trial = begin(manifest, ledger={"rpc_urls": (chain.url,)})
    home = trial.home

    def make_block() -> None:
        chain.now_seconds = trial.now() - trial.skew
        chain.send(BOB, address(BOB), b"", value_wei=1)

    trial.skew = 100 * EPOCH_SECONDS
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await until(lambda: home.events("training_privately"))
        trial.pass_by(20)
        await trio.to_thread.run_sync(make_block)
        await trial.until_told("clock_off")
        assert SigningDatabase(home.data.database).marks() == ()
        trial.skew = 0
        await trial.until_told("clock_jumped")
        trial.pass_by(300)
        await trial.until_status(lambda _: bool(home.events("published")))
        assert signed_in(home) == 0
        await trial.stop()
    chain.close()


async def test_a_chain_without_new_blocks_delays_no_node(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """The newest block is of an earlier epoch, and no other comes."""
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=EPOCH_SECONDS)
    trial = begin(manifest, ledger={"rpc_urls": (contracts.chain.url,)})
    home = trial.home
    trial.wall_base += 2 * EPOCH_SECONDS
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        await until(lambda: home.events("training_privately"))
        assert SigningDatabase(home.data.database).marks() == ()
        trial.pass_by(60)
        await trial.rounds(1)
        trial.pass_by(30)  # the ledger's announcements are read again
        await trial.until_status(lambda _: bool(home.events("published")))
        assert signed_in(home) == 2
        await trial.stop()
    contracts.chain.close()


@pytest.mark.long
async def test_the_beacon_of_an_epoch_that_is_not_the_current_one_is_waited_for_no_longer(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """The node starts with its clock far ahead; with two confirmations the chain has no such block."""
    contracts, manifest = found_now(tmp_path, weekdays, epoch_seconds=EPOCH_SECONDS)
    chain = contracts.chain
    trial = begin(manifest, ledger={"rpc_urls": (chain.url,), "confirmations": 2})
    home = trial.home
    account = home.identity.account
    await trio.to_thread.run_sync(lambda: chain.send(BOB, account, b"", value_wei=10**18))
    trial.skew = 100 * EPOCH_SECONDS
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        trial.pass_by(20)
        await trial.until_status(lambda _: bool(home.events("training_privately")))
        assert home.events("published") == []
        trial.skew = 0
        await trial.until_told("clock_jumped")
        trial.pass_by(300)
        await trial.until_status(lambda _: bool(home.events("published")))
        assert signed_in(home) == 0
        await trial.stop()
    chain.close()
