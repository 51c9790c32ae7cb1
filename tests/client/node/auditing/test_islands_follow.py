"""The number of islands over a real chain: it follows the auditors' settlements, without penalties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from support.auditor_harness import AUDITORS, CROWD, AuditorHarness, World, checking, connect
from support.nodes import until

from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import ContentId
from sapo_protocol.rules import Reason
from sapo_protocol.terms.islands import IslandTerms
from sapo_verification.reputation.penalties import verdict

EPOCH = 103
"""The chain has blocks from the beginning of epoch 100 on, and islands rest on one from two epochs before."""

COUNTED_SECONDS = 7
PATIENCE_SECONDS = 180.0
WORK_SECONDS = 57
"""Behind all turns of the epoch before: the clock never goes back."""

TERMS = IslandTerms(most_accounts=2, least_accounts=1, period_epochs=4, most_islands=4)
"""Three paid accounts are too many for one island, and one is too few for two."""

WORKING = {103: 3, 104: 1, 105: 3, 106: 4, 107: 4}
"""How many work in each epoch. So there are two islands from 106 on, for which 103 is the newest final epoch:
one epoch in which few work merges none."""

COUNTS = {103: 1, 104: 1, 105: 1, 106: 2, 107: 2}

LAST, JOINED = 107, 106


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(tmp_path, workers=CROWD) as created:
        created.manifest = replace(created.manifest, version=2, islands=TERMS)
        yield created


@pytest.mark.long
async def test_all_nodes_follow_one_to_two_islands_without_penalties(world: World) -> None:
    """Rollouts are received and paid before and after the change; a node that joins later agrees."""
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        workers = [AuditorHarness(world, identity, checkers, audits=False) for identity in CROWD]
        early, late = workers[:3], workers[3]
        for harness in (*auditors, *early):
            nursery.start_soon(harness.run)
        world.turn_to(EPOCH, WORK_SECONDS)
        await connect(*auditors, *early)
        present = [*auditors, *early]
        for epoch, working in WORKING.items():
            world.turn_to(epoch, WORK_SECONDS)
            if epoch == JOINED:
                nursery.start_soon(late.run)
                await meet(late, present)
                present.append(late)
            await know_the_islands(present, epoch)
            if epoch == JOINED:
                await until(lambda: all(late.node.knows(one.node) for one in auditors), PATIENCE_SECONDS)
                await until(lambda: all(one.node.knows(late.node) for one in auditors), PATIENCE_SECONDS)
            sent = {(await worker.work(epoch, slot=0)).content_id for worker in workers[:working]}
            await hear(auditors, sent)
            if epoch == LAST:
                break
            await settle(world, auditors[0], epoch)
            paid = auditors[0].contributions.proposals(epoch)
            assert working in {sum(share.points > 0 for share in one.shares) for one in paid.values()}
        for harness in present:
            assert {peer.score for peer in harness.node.transport.peers()} == {0.0}
            failed = harness.node.events("service_failed")
            assert [event for event in failed if not event["transient"]] == []
            reasons = {Reason(str(event["reason"])) for event in harness.node.events("refused")}
            assert {verdict(reason) for reason in reasons} <= {Verdict.IGNORE}
            evidence = [harness.node.reputation.evidence(one.identity.account, LAST) for one in present]
            assert {one.bad for one in evidence} == {0.0}
            heard = len(harness.node.events("admitted"))
            assert heard == sum(WORKING.values()) if harness in auditors else heard > 0


async def meet(late: AuditorHarness, present: Sequence[AuditorHarness]) -> None:
    """Connect one more node to all others; it knows neither certificates nor islands yet."""
    await until(lambda: late.node.hub.node(late.node.peer_id))
    for one in present:
        await late.node.transport.connect(one.node.address)


async def know_the_islands(harnesses: Sequence[AuditorHarness], epoch: int) -> None:
    """Wait until every node knows the number of islands in an epoch; it is what it has to be."""

    def all_know() -> bool:
        return all(each.node.engine.islands.knows(epoch) for each in harnesses)

    await until(all_know, PATIENCE_SECONDS)
    counts = {each.node.engine.islands.count(epoch) for each in harnesses}
    assert counts == {COUNTS[epoch]}, epoch


async def hear(auditors: Sequence[AuditorHarness], sent: set[ContentId]) -> None:
    """Wait until every auditor has admitted and verified what was sent."""
    names = {one.hex() for one in sent}

    def all_heard() -> bool:
        return all(
            names <= {event["content_id"] for event in each.node.events("verified")} for each in auditors
        )

    await until(all_heard, PATIENCE_SECONDS)


async def settle(world: World, witness: AuditorHarness, epoch: int) -> None:
    """Advance the clock through the next epoch until this one is final."""
    world.turn_to(epoch + 1, COUNTED_SECONDS)
    await until(lambda: len(witness.contributions.tallies(epoch)) == len(AUDITORS))
    for seconds in (13, 19, 25, 31, 37, 43, 49, 55):
        world.turn_to(epoch + 1, seconds)
        with trio.move_on_after(20):
            while (record := await witness.ledger.last_record()) is None or record.root.epoch < epoch:
                await trio.sleep(0.2)
            return
    raise AssertionError("the epoch was not posted")
