"""A copy of an auditor's node tells its operator that the other one approves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

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

from sapo_client.node.auditing.auditor import Auditor
from sapo_client.node.policy_events import PolicyEvents
from sapo_client.observe.findings import FindingCode
from sapo_client.observe.health import HealthFacts, PolicyEvent, assess, is_healthy
from sapo_verification.signing.database import SigningDatabase

EPOCH = 101
COUNTED_SECONDS = 7  # after an epoch's end: its grace is over, tallies go out


async def test_a_copy_that_hears_the_original_approve_says_so_until_it_is_restarted(tmp_path: Path) -> None:
    """The copy has the messages, and a signing database of before the approval. Nothing is posted."""
    with World.running(tmp_path) as world:
        async with checking(world) as (nursery, checkers):
            original, *others = (AuditorHarness(world, identity, checkers) for identity in AUDITORS)
            worker = AuditorHarness(world, WORKERS[0], checkers, audits=False)
            life = trio.CancelScope()

            async def live() -> None:
                with life:
                    await original.run(sends=False)

            nursery.start_soon(live)
            for harness in (*others, worker):
                nursery.start_soon(partial(harness.run, sends=False))
            world.turn_to(EPOCH, 30)
            await connect(original, *others, worker)
            await worker.work(EPOCH, 0)
            await until(lambda: all(each.node.events("verified") for each in (original, *others)))
            world.turn_to(EPOCH + 1, COUNTED_SECONDS)
            await until(lambda: len(original.contributions.tallies(EPOCH)) == len(AUDITORS))
            world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS)
            account = original.identity.account
            await until(lambda: account in {each.account for each in original.contributions.approvals(EPOCH)})
            life.cancel()
            await until(lambda: original.node.hub.node(original.node.peer_id) is None)

            copy = AuditorHarness(world, original.identity, checkers)
            parts = replace(copy.parts, signing=SigningDatabase(":memory:"), machine=None)
            copy.auditor, told = Auditor(parts), PolicyEvents(tmp_path)
            copy.node.log.listen(told.note)
            nursery.start_soon(partial(copy.run, sends=False))
            await until(lambda: copy.node.events("approved_elsewhere"))
    text = (
        f"another node approves as this auditor (epoch {EPOCH}), and two roots in one turn cost the bond, so"
        " this node approves nothing"
    )
    assert told.recent() == (PolicyEvent(FindingCode.APPROVED_ELSEWHERE, text),)
    assert not is_healthy(assess(HealthFacts(events=told.recent())))
