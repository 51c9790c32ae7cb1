"""Beacons with and without a chain, and while the chain is unreachable."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.ledger import BOB, ServedChain, found
from support.nodes import until
from support.swarm import make_chain_manifest, make_manifest
from trio.testing import MockClock

from sapo_client.ledger.errors import LedgerError, LedgerUnavailable
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.observe.events import EventLog, read_events
from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.terms.islands import IslandTerms

AWAY = LedgerUnavailable(["http://127.0.0.1:1"], "ConnectionError")
EARLY = LedgerError("the moment is still to come", hint="check this machine's clock")


class Chain:
    """A chain whose block hashes follow from the requested time, over a connection that may fail."""

    def __init__(self, *troubles: LedgerError) -> None:
        self.troubles = list(troubles)
        self.questions: list[int] = []

    async def block_hash_before(self, timestamp_seconds: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.questions.append(timestamp_seconds)
        if self.troubles:
            raise self.troubles.pop(0)
        return timestamp_seconds.to_bytes(32, "big")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def events(path: Path) -> EventLog:
    return EventLog(path)


async def test_without_a_chain_a_beacon_follows_from_swarm_and_epoch(events: EventLog, path: Path) -> None:
    manifest = make_manifest()
    beacons = Beacons(manifest, NoChain().block_hash_before, events)
    assert beacons.known(3) is None
    expected = beacon(manifest.swarm_id, 3, b"")
    assert await beacons.obtain(3) == beacons.known(3) == expected
    [event] = read_events(path)
    assert (event["event"], event["epoch"], event["beacon"]) == ("epoch", 3, expected.hex())


async def test_a_chain_that_is_away_is_waited_for_without_falling_back(
    events: EventLog, path: Path, autojump_clock: MockClock
) -> None:
    manifest = make_chain_manifest()
    chain = Chain(AWAY, AWAY, AWAY, EARLY, AWAY)
    beacons = Beacons(manifest, chain.block_hash_before, events)
    moment = epoch_start_seconds(manifest, 3) - manifest.finality_seconds
    assert await beacons.obtain(3) == beacon(manifest.swarm_id, 3, moment.to_bytes(32, "big"))
    assert chain.questions == [moment] * 6
    written = [event["event"] for event in read_events(path)]
    assert written == ["ledger_error", "ledger_error", "ledger_error", "epoch"]  # each trouble once


async def test_nothing_is_known_while_the_chain_is_away(events: EventLog, autojump_clock: MockClock) -> None:
    beacons = Beacons(make_chain_manifest(), Chain(*[AWAY] * 1000).block_hash_before, events)
    with trio.move_on_after(600) as patience:
        await beacons.obtain(3)
    assert patience.cancelled_caught
    assert beacons.known(3) is None


async def test_known_epochs_are_returned_while_another_is_awaited(
    events: EventLog, autojump_clock: MockClock
) -> None:
    chain = Chain()
    beacons = Beacons(make_chain_manifest(), chain.block_hash_before, events)
    known = await beacons.obtain(3)
    chain.troubles = [EARLY] * 1000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(beacons.obtain, 4)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(0.1):
            assert await beacons.obtain(3) == known
        nursery.cancel_scope.cancel()


async def test_concurrent_waiters_share_one_request(
    events: EventLog, path: Path, autojump_clock: MockClock
) -> None:
    chain = Chain(AWAY)
    beacons = Beacons(make_chain_manifest(), chain.block_hash_before, events)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(beacons.obtain, 3)
    assert len(chain.questions) == 2
    assert [event["event"] for event in read_events(path)] == ["ledger_error", "epoch"]


async def test_old_epochs_are_forgotten(events: EventLog) -> None:
    beacons = Beacons(make_manifest(), NoChain().block_hash_before, events)
    for epoch in range(12):
        await beacons.obtain(epoch)
    kept = [epoch for epoch in range(12) if beacons.known(epoch) is not None]
    assert kept == list(range(4, 12))


async def test_errors_other_than_those_of_the_chain_are_raised(events: EventLog) -> None:
    async def broken(_: int) -> bytes:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await Beacons(make_chain_manifest(), broken, events).obtain(3)


async def test_beacons_continue_after_a_restart_of_the_chain(
    events: EventLog, path: Path, tmp_path: Path
) -> None:
    contracts = found(tmp_path / "chain.sqlite")
    chain, manifest = contracts.chain, contracts.manifest()
    chain.close()
    ledger = LedgerClient(
        manifest=manifest, account=BOB, rpc_urls=[chain.url], outbox_path=tmp_path / "outbox.sqlite"
    )
    beacons = Beacons(manifest, ledger.block_hash_before, events)
    obtained = []
    async with trio.open_nursery() as nursery:

        async def obtain() -> None:
            obtained.append(await beacons.obtain(101))

        nursery.start_soon(obtain)
        await until(lambda: any(event["event"] == "ledger_error" for event in read_events(path)))
        assert obtained == []
        back = ServedChain(tmp_path / "chain.sqlite", port=int(chain.url.rpartition(":")[2]))
    block = back.request("eth_getBlockByNumber", "latest", False)["result"]
    assert obtained == [beacon(manifest.swarm_id, 101, bytes.fromhex(block["hash"][2:]))]
    assert [event["event"] for event in read_events(path)] == ["ledger_error", "epoch"]
    back.close()


async def test_the_beacons_of_a_period_are_recalled_newest_first_and_each_once(events: EventLog) -> None:
    terms = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=6, most_islands=16, count=4)
    manifest = make_chain_manifest(version=2, islands=terms)
    chain = Chain()
    beacons = Beacons(manifest, chain.block_hash_before, events)
    await beacons.recall(40)
    asked = [epoch_start_seconds(manifest, epoch) - manifest.finality_seconds for epoch in range(39, 20, -1)]
    assert chain.questions == asked
    assert all(beacons.known(epoch) is not None for epoch in range(21, 40))
    await beacons.recall(40)
    await beacons.recall(41)
    assert chain.questions[len(asked) :] == [asked[0] + manifest.epoch_seconds]


async def test_a_recall_pauses_without_the_chain_and_continues_later(events: EventLog) -> None:
    terms = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=2, most_islands=16, count=4)
    chain = Chain(AWAY)
    beacons = Beacons(make_chain_manifest(version=2, islands=terms), chain.block_hash_before, events)
    await beacons.recall(3)
    assert (len(chain.questions), beacons.known(2)) == (1, None)
    await beacons.recall(3)
    assert [epoch for epoch in range(4) if beacons.known(epoch) is not None] == [0, 1, 2]


async def test_a_recalled_epoch_is_logged_when_its_beacon_is_obtained(events: EventLog, path: Path) -> None:
    terms = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=2, most_islands=16, count=4)
    beacons = Beacons(make_chain_manifest(version=2, islands=terms), Chain().block_hash_before, events)
    kept = 0
    for epoch in range(40):
        await beacons.recall(epoch + 1)
        await beacons.obtain(epoch)
        await beacons.obtain(epoch)
        kept = max(kept, sum(beacons.known(one) is not None for one in range(epoch + 1)))
    assert [event["epoch"] for event in read_events(path) if event["event"] == "epoch"] == list(range(40))
    assert kept < 25
