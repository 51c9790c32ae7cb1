"""The records in force: from the chain's final roots and the proposals that they name."""

from __future__ import annotations

from pathlib import Path

import trio
from support.nodes import until
from support.swarm import make_chain_manifest, make_manifest
from trio.testing import MockClock

from sapo_client.ledger.errors import LedgerUnavailable
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.records import Records, no_archive, no_final_root
from sapo_client.observe.events import EventLog, read_events
from sapo_protocol import merkle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import ContentId, Digest
from sapo_protocol.terms.difficulty import Difficulty, Outcomes

LADDERS = Difficulty(ladders=((0, 1),))
MANIFEST = make_chain_manifest(version=2, difficulty=LADDERS)
FIRST = LADDERS.start(len(MANIFEST.suite.families))
MOVED = LADDERS.follow(FIRST, [Outcomes(9, 0, 0)] * len(FIRST))
PROPOSAL = ContentId(b"\x07" * 32)


class FinalChain:
    """A chain on which an epoch becomes final at a time."""

    def __init__(self, final_seconds: int) -> None:
        self.final_seconds = final_seconds
        self.is_away = False

    async def block_hash_before(self, timestamp_seconds: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if self.is_away:
            raise LedgerUnavailable(["http://127.0.0.1:1"], "ConnectionError")
        return timestamp_seconds.to_bytes(32, "big")

    async def final_root_before(self, timestamp_seconds: int) -> EpochRoot | None:
        await trio.lowlevel.checkpoint()
        if timestamp_seconds < self.final_seconds:
            return None
        roots = dict.fromkeys(("base_root", "contribution_root", "cumulative_root"), merkle.EMPTY_ROOT)
        return EpochRoot(epoch=1, **roots, total=1, archive_digest=Digest(PROPOSAL))


def open_beacons(path: Path, *, final_in_epoch: int, archive: dict[ContentId, object]) -> Beacons:
    chain = FinalChain(epoch_start_seconds(MANIFEST, final_in_epoch))
    records = Records(MANIFEST, chain.final_root_before, archive.get)  # type: ignore[arg-type]
    return Beacons(MANIFEST, chain.block_hash_before, EventLog(path), records)


async def test_without_ladders_there_are_no_records(tmp_path: Path) -> None:
    beacons = Beacons(make_manifest(), NoChain().block_hash_before, EventLog(tmp_path / "events.jsonl"))
    await beacons.obtain(3)
    assert beacons.records.known(3) == beacons.records.known(99) == ()


async def test_without_a_chain_the_first_record_stays_in_force() -> None:
    manifest = make_manifest(version=2, difficulty=LADDERS)
    records = Records(manifest, no_final_root, no_archive)
    assert records.known(3) is None
    await records.learn(3, 0)
    assert records.known(3) == LADDERS.start(len(manifest.suite.families))


async def test_the_record_in_force_is_that_of_the_last_epoch_final_before_the_beacons_block(
    tmp_path: Path,
) -> None:
    beacons = open_beacons(tmp_path / "events.jsonl", final_in_epoch=3, archive={PROPOSAL: MOVED})
    for epoch, expected in ((2, FIRST), (3, FIRST), (4, MOVED)):
        assert beacons.records.known(epoch) is None
        await beacons.obtain(epoch)
        assert beacons.records.known(epoch) == expected, epoch


async def test_a_proposal_that_is_missing_is_waited_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    path, archive = tmp_path / "events.jsonl", dict[ContentId, object]()
    beacons = open_beacons(path, final_in_epoch=0, archive=archive)
    done = trio.Event()

    async def obtain() -> None:
        await beacons.obtain(5)
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(obtain)
        await until(lambda: any("proposal" in str(event) for event in read_events(path)))
        assert not done.is_set()
        archive[PROPOSAL] = MOVED
        await done.wait()
    assert beacons.records.known(5) == MOVED


async def test_old_records_are_dropped(tmp_path: Path) -> None:
    beacons = open_beacons(tmp_path / "events.jsonl", final_in_epoch=0, archive={PROPOSAL: MOVED})
    for epoch in (1, 9):
        await beacons.obtain(epoch)
    assert [beacons.records.known(epoch) is None for epoch in (1, 9)] == [True, False]
