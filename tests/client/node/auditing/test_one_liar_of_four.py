"""One of four auditors lies, is late, or sends different messages to the others: every epoch is posted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from support.auditor_harness import (
    FIRST_TURN_SECONDS,
    FOUR_AUDITORS,
    TURN_SECONDS,
    WORKERS,
    AuditorHarness,
    World,
    checking,
    connect,
)
from support.contributions import sealed_by, tally_of
from support.nodes import until

from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import Account

EPOCH = 101
"""A minute after the chain's clock begins; its first proposer is the auditor numbered 1."""

TALLIED_SECONDS = 10  # after an epoch's end: the tallies go out, whatever is not audited yet
ALICE = WORKERS[0]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(tmp_path, auditors=FOUR_AUDITORS, quorum=3) as created:
        yield created


async def counted(world: World, honest: list[AuditorHarness], alice: AuditorHarness) -> None:
    """Let the honest auditors count 1, 2 and 3 of one account's rollouts, and publish their tallies."""
    world.turn_to(EPOCH, 30)
    await connect(*honest, alice)
    rollouts = [await alice.work(EPOCH, slot) for slot in range(3)]
    for number, harness in enumerate(honest, start=1):
        await until(lambda harness=harness: len(harness.node.events("admitted")) == 3)  # type: ignore[misc]
        await harness.beacons.obtain(EPOCH)
        for admitted in rollouts[:number]:
            await harness.node.engine.verify(admitted)
    world.turn_to(EPOCH + 1, TALLIED_SECONDS)
    await until(lambda: all(len(harness.contributions.tallies(EPOCH)) == 3 for harness in honest))


async def posted_total(world: World, witness: AuditorHarness) -> int:
    """Advance the clock, turn by turn, until the epoch is on the chain; return its points."""
    for turn, patience_seconds in ((0, 6), (1, 6), (2, 6), (3, 6), (4, 30)):
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS + turn * TURN_SECONDS)
        with trio.move_on_after(patience_seconds):
            while (live := await witness.ledger.live_record()) is None:
                await trio.sleep(0.2)
            return live.root.total
    raise AssertionError("the epoch was not posted")


@pytest.mark.parametrize("told", ["all but the proposer", "the proposer alone", "nobody"])
@pytest.mark.parametrize("count", [0, 16])
async def test_a_late_false_tally_of_one_auditor_prevents_no_payment(
    world: World, told: str, count: int
) -> None:
    """The lower median of 1, 2, 3 and 0 differs from that of 1, 2 and 3, so holders compute another sum."""
    async with checking(world) as (nursery, checkers):
        liar_identity, *honest_identities = FOUR_AUDITORS
        honest = [AuditorHarness(world, identity, checkers) for identity in honest_identities]
        alice = AuditorHarness(world, ALICE, checkers, audits=False)
        for harness in (*honest, alice):
            nursery.start_soon(partial(harness.run, sends=harness in honest, verifies=False))
        await counted(world, honest, alice)

        proposer, *others = honest
        world.turn_to(EPOCH + 1, FIRST_TURN_SECONDS - 1.5)
        for harness in honest:
            certificate = liar_identity.certificate(
                world.manifest, int(world.now()) - 60, int(world.now()) + 600
            )
            harness.node.certificates.admit(certificate.to_bytes(), world.now())
        points: dict[Account, int] = {ALICE.account: count} if count else {}
        late = sealed_by(liar_identity, world.manifest, tally_of(liar_identity, EPOCH, points))
        receivers = {"all but the proposer": others, "the proposer alone": [proposer], "nobody": []}[told]
        for harness in receivers:
            assert harness.node.gossip.validate_contribution(late, forwarder="liar") is Verdict.ACCEPT

        assert 1 <= await posted_total(world, alice) <= 3
        nursery.cancel_scope.cancel()
