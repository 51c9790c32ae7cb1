"""Difficulty over a real chain: the settlement of an epoch determines the levels two epochs later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from support.auditor_harness import (
    AUDITORS,
    FIRST_TURN_SECONDS,
    WORKERS,
    AuditorHarness,
    World,
    checking,
    connect,
)
from support.nodes import until

from sapo_protocol.contributions import Proposal
from sapo_protocol.identifiers import ContentId
from sapo_protocol.terms.difficulty import Difficulty, LevelRecord, Outcomes

EPOCH = 101
COUNTED_SECONDS = 7
LADDERS = Difficulty(ladders=((0, 1),), step=1000, floor=0, completions=2)
"""One epoch of right answers moves the whole ladder to its next level."""

ALICE, BOB = WORKERS


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(tmp_path) as created:
        created.manifest = replace(created.manifest, version=2, difficulty=LADDERS)
        yield created


def level(harness: AuditorHarness, epoch: int) -> int:
    """Return the ladder's level that a slot has."""
    return min(harness.node.engine.levels.families_of(epoch, ALICE.account, 0))


async def test_right_answers_raise_the_level_and_are_paid(world: World) -> None:
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        alice, bob = (AuditorHarness(world, identity, checkers, audits=False) for identity in WORKERS)
        for harness in (*auditors, alice, bob):
            nursery.start_soon(harness.run)
        world.turn_to(EPOCH, 30)
        await connect(*auditors, alice, bob)
        for slot in range(12):
            await alice.work(EPOCH, slot, right=2, wrong=0)
            await bob.work(EPOCH, slot, right=0 if slot == 0 else 2, wrong=2 if slot == 0 else 0)
        assert level(alice, EPOCH) == 0
        await until(lambda: all(len(each.node.events("verified")) == 24 for each in auditors))

        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: len(alice.contributions.tallies(EPOCH)) == 3)
        for tally in alice.contributions.tallies(EPOCH).values():
            assert (tally.points, tally.outcomes[:2]) == (
                tuple(sorted(((ALICE.account, 12), (BOB.account, 11)))),
                (Outcomes(7, 0, 1), Outcomes()),  # of 24 groups the middle third, four of each account
            )
        proposal = await settled_proposal(world, alice)
        assert proposal.record[:2] == (LevelRecord(7, 0, 1, 500), LevelRecord(0, 0, 0, 500))

        world.turn_to(EPOCH + 2, 30)
        for harness in (*auditors, alice, bob):
            await harness.beacons.obtain(EPOCH + 2)
            assert harness.node.engine.levels.record(EPOCH + 2) == proposal.record
        drawn = [alice.node.engine.levels.families_of(EPOCH + 2, ALICE.account, slot) for slot in range(64)]
        assert 0.3 < sum(1 in families for families in drawn) / len(drawn) < 0.7


async def settled_proposal(world: World, witness: AuditorHarness) -> Proposal:
    """Advance the clock until the epoch is final; return the proposal behind its root."""
    for seconds in (FIRST_TURN_SECONDS, 19, 25, 31, 55):
        world.turn_to(EPOCH + 1, seconds)
        with trio.move_on_after(20):
            while (record := await witness.ledger.last_record()) is None:
                await trio.sleep(0.2)
            return await held_proposal(witness, ContentId(record.root.archive_digest))
    raise AssertionError("the epoch was not posted")


async def held_proposal(witness: AuditorHarness, content_id: ContentId) -> Proposal:
    """Return a proposal once a node holds it."""
    await until(lambda: witness.contributions.has(content_id))
    proposal = witness.contributions.proposal(content_id)
    assert proposal is not None
    return proposal
