"""An auditor whose clock is ahead of its chain's at its start neither closes nor tallies an epoch early."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.health_trial import Begin, HealthTrial
from support.ledger import BOB, ServedChain, address
from support.nodes import Events, found_now, until
from support.swarm import Identity
from trio.testing import MockClock

from sapo_protocol.suite import Suite

EPOCH_SECONDS = 3600
EXIT_SECONDS = 14 * EPOCH_SECONDS
"""The least that a bond takes to leave."""


def epochs_of(events: Events) -> list[object]:
    """Return the epochs of events."""
    return [event["epoch"] for event in events]


def make_block(chain: ServedChain, trial: HealthTrial) -> None:
    """Make a block of the true time, from which the trial's clock may differ."""
    chain.now_seconds = trial.now() - trial.skew
    chain.send(BOB, address(BOB), b"", value_wei=1)


async def test_an_epoch_that_has_not_ended_for_the_chain_is_not_closed(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """A tally cannot be taken back, and bonds that were read once are not read again."""
    contracts, manifest = found_now(
        tmp_path,
        weekdays,
        epoch_seconds=EPOCH_SECONDS,
        auditors=(Identity(1).account,),
        quorum=1,
        account_exit_seconds=EXIT_SECONDS,
    )
    chain = contracts.chain
    trial = begin(manifest, ledger={"rpc_urls": (chain.url,), "audit": True})
    home = trial.home

    trial.skew = 1.5 * EPOCH_SECONDS
    async with trio.open_nursery() as nursery:
        await trial.start(nursery)
        trial.pass_by(20)
        await trio.to_thread.run_sync(make_block, chain, trial)
        await trial.until_told("clock_off")
        trial.pass_by(30)
        await trio.to_thread.run_sync(make_block, chain, trial)
        await until(lambda: home.events("bonds"))
        assert epochs_of(home.events("tally")) == []
        assert set(epochs_of(home.events("bonds"))) == {0}
        trial.skew = 0
        await trial.until_told("clock_jumped")
        trial.pass_by(300)
        await trial.until_over("clock_jumped")
        trial.pass_by(EPOCH_SECONDS)
        await trio.to_thread.run_sync(make_block, chain, trial)
        await until(lambda: home.events("tally"))
        assert epochs_of(home.events("tally")) == [0]
        assert set(epochs_of(home.events("bonds"))) == {0, 1}
        await trial.stop()
    chain.close()


@pytest.mark.long
async def test_a_lead_of_minutes_that_the_start_allows_closes_no_epoch_of_the_chain(
    mock_clock: MockClock, begin: Begin, weekdays: Suite, tmp_path: Path
) -> None:
    """The first block shows no more, and a tally of an epoch that goes on cannot be taken back."""
    contracts, manifest = found_now(
        tmp_path, weekdays, epoch_seconds=EPOCH_SECONDS, auditors=(Identity(1).account,), quorum=1
    )
    chain = contracts.chain
    trial = begin(manifest, ledger={"rpc_urls": (chain.url,), "audit": True})
    home = trial.home

    trial.pass_by(EPOCH_SECONDS - 200)
    trial.skew = 9 * 60
    await trio.to_thread.run_sync(make_block, chain, trial)
    async with trio.open_nursery() as nursery:
        await trial.start(nursery, rate=0.1)
        await until(lambda: home.events("step"))
        assert epochs_of(home.events("tally")) == []
        await trio.to_thread.run_sync(make_block, chain, trial)
        mock_clock.rate = 1.0
        await trial.until_status(lambda status: "clock_off" in [each["code"] for each in status["findings"]])
        assert epochs_of(home.events("tally")) == []
        await trial.stop()
    chain.close()
