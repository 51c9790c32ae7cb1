"""A swarm with a bond gate on a real chain: accounts are paid in proportion to bonds, others are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.auditor_harness import AUDITORS, AuditorHarness, Funded, World, checking, connect
from support.ledger import ACCOUNT_EXIT_SECONDS, BOND_UNIT, POINTS_CAP
from support.nodes import until

from sapo_client.ledger.records import Stake
from sapo_protocol.topics import certificates_topic, rollouts_topic

EPOCH = 101
COUNTED_SECONDS = 7

WHOLE, HALF, OTHER_HALF, NOBODY = (Funded(number) for number in (2, 3, 4, 5))
BONDED = (WHOLE, HALF, OTHER_HALF)
SLOTS = 10
"""Each works on more than what half of a bond is paid for, which is eight."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World.running(
        tmp_path, workers=(*BONDED, NOBODY), account_exit_seconds=ACCOUNT_EXIT_SECONDS
    ) as created:
        yield created


async def _flood(nobody: AuditorHarness, count: int) -> None:
    """Send rollouts and the certificate of an account without a bond, as a changed program would."""
    manifest, transport, identity = nobody.manifest, nobody.node.transport, nobody.identity
    certificate = identity.certificate(manifest).to_bytes()
    await transport.publish(certificates_topic(manifest.swarm_id), certificate)
    for slot in range(count):
        message = identity.message(manifest, epoch=EPOCH, slot=slot)
        await transport.publish(rollouts_topic(manifest.swarm_id), message)


@pytest.mark.long
async def test_accounts_are_paid_in_proportion_to_bonds_and_others_are_ignored(world: World) -> None:
    world.contracts.bond_account(WHOLE.account, 2 * BOND_UNIT)  # more than a unit counts as one
    world.contracts.bond_account(HALF.account, BOND_UNIT // 2)
    world.contracts.bond_account(OTHER_HALF.account, BOND_UNIT // 2)
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        bonded = [AuditorHarness(world, identity, checkers, audits=False) for identity in BONDED]
        nobody = AuditorHarness(world, NOBODY, checkers, audits=False)
        everybody = [*auditors, *bonded]
        for harness in (*everybody, nobody):
            nursery.start_soon(partial(harness.run, sends=harness in auditors))
        world.turn_to(EPOCH, 30)
        await until(lambda: all(h.node.engine.standing.is_known(EPOCH) for h in (*everybody, nobody)))
        await connect(*everybody)
        for harness in everybody:
            await nobody.node.transport.connect(harness.node.address)

        for worker in bonded:
            for slot in range(SLOTS):
                await worker.work(EPOCH, slot)
        await nobody.work(EPOCH, 0)  # the genuine program sends nothing
        await _flood(nobody, SLOTS)
        await until(lambda: all(len(a.node.events("verified")) == SLOTS * len(bonded) for a in auditors))
        await until(lambda: all(_refused(h) > SLOTS for h in everybody))  # and the certificate
        assert not any(harness.node.knows(nobody.node) for harness in everybody)
        assert sum(peer.rejected for h in everybody for peer in h.node.transport.peers()) == 0

        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(h.contributions.tallies(EPOCH)) == 3 for h in everybody))
        expected = {WHOLE.account: SLOTS, HALF.account: POINTS_CAP // 2, OTHER_HALF.account: POINTS_CAP // 2}
        counts = {tuple(tally.points) for tally in auditors[0].contributions.tallies(EPOCH).values()}
        assert counts == {tuple(sorted(expected.items()))}
        await world.until_posted(EPOCH, auditors[0])
        await until(lambda: [worker.auditor.points for worker in bonded] == [*expected.values()])
        nursery.cancel_scope.cancel()


async def test_two_contents_for_one_slot_cost_the_bond(world: World) -> None:
    world.contracts.bond_account(WHOLE.account, BOND_UNIT)
    world.contracts.bond_account(HALF.account, BOND_UNIT // POINTS_CAP - 1)  # worth less than a point
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        liars = [AuditorHarness(world, identity, checkers, audits=False) for identity in (WHOLE, HALF)]
        for harness in (*auditors, *liars):
            nursery.start_soon(partial(harness.run, sends=harness in auditors))
        world.turn_to(EPOCH, 30)
        await until(lambda: all(h.node.engine.standing.is_known(EPOCH) for h in (*auditors, *liars)))
        await connect(*auditors, *liars)
        for liar in liars:
            for answer in (b"one", b"another"):
                message = liar.identity.message(
                    world.manifest, epoch=EPOCH, slot=0, completions=(answer, b"x")
                )
                await liar.node.transport.publish(rollouts_topic(world.manifest.swarm_id), message)
        await until(lambda: all(len(auditor.node.engine.proofs) == len(liars) for auditor in auditors))
        await until(lambda: world.contracts.gate.accusation(WHOLE.account, EPOCH).slashed)
        assert world.contracts.gate.stake(WHOLE.account) == Stake(0, 0, 0)
        accused = [event["account"] for auditor in auditors for event in auditor.node.events("accused")]
        assert set(accused) == {WHOLE.account.hex()}
        assert world.contracts.gate.stake(HALF.account).bonded == BOND_UNIT // POINTS_CAP - 1
        world.turn_to(EPOCH + 1, 1)
        await until(lambda: all(h.node.engine.standing.is_known(EPOCH + 1) for h in auditors))
        assert all(not h.node.engine.standing.units_now(WHOLE.account) for h in auditors)
        nursery.cancel_scope.cancel()


def _refused(harness: AuditorHarness) -> int:
    return sum(event["reason"] == "no_bond" for event in harness.node.events("refused"))
