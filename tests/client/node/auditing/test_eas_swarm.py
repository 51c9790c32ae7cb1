"""A swarm with an attestation gate on a real chain: accounts without one are ignored without penalty."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.auditor_harness import AUDITORS, AuditorHarness, Funded, checking, connect
from support.eas import ATTESTERS
from support.eas_world import AttestedWorld
from support.ledger import keys
from support.nodes import until

from sapo_protocol.topics import certificates_topic, rollouts_topic

EPOCH = 101
COUNTED_SECONDS = 7

ATTESTED, NOBODY = Funded(2), Funded(3)
SLOTS = 3


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AttestedWorld]:
    with AttestedWorld.running(tmp_path, workers=(ATTESTED, NOBODY)) as created:
        yield created


async def _flood(nobody: AuditorHarness, count: int) -> None:
    """Send rollouts and the certificate of an account without standing, as a changed program would."""
    manifest, transport, identity = nobody.manifest, nobody.node.transport, nobody.identity
    await transport.publish(certificates_topic(manifest.swarm_id), identity.certificate(manifest).to_bytes())
    for slot in range(count):
        message = identity.message(manifest, epoch=EPOCH, slot=slot)
        await transport.publish(rollouts_topic(manifest.swarm_id), message)


@pytest.mark.long
async def test_attested_accounts_count_and_others_are_ignored(world: AttestedWorld) -> None:
    uid = world.eas.attest(ATTESTERS[0], ATTESTED.account)
    world.eas.attest(keys(NOBODY.number), NOBODY.account)  # itself
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        attested = AuditorHarness(world, ATTESTED, checkers, audits=False)
        nobody = AuditorHarness(world, NOBODY, checkers, audits=False)
        everybody = [*auditors, attested]
        for harness in (*everybody, nobody):
            nursery.start_soon(partial(harness.run, sends=False))
        world.turn_to(EPOCH, 30)
        await until(lambda: all(h.node.engine.standing.is_known(EPOCH) for h in (*everybody, nobody)))
        await connect(*everybody)
        for harness in everybody:
            await nobody.node.transport.connect(harness.node.address)

        for slot in range(SLOTS):
            await attested.work(EPOCH, slot)
        await _flood(nobody, SLOTS)
        await until(lambda: all(len(a.node.events("verified")) == SLOTS for a in auditors))
        await until(lambda: all(_refused(h) > SLOTS for h in everybody))  # and the certificate
        assert sum(peer.rejected for h in everybody for peer in h.node.transport.peers()) == 0

        world.eas.revoke(ATTESTERS[0], uid)  # in this epoch, of which it takes nothing
        world.turn_to(EPOCH + 1, COUNTED_SECONDS)
        await until(lambda: all(len(h.contributions.tallies(EPOCH)) == 3 for h in everybody))
        counts = {tuple(tally.points) for tally in auditors[0].contributions.tallies(EPOCH).values()}
        assert counts == {((ATTESTED.account, SLOTS),)}
        await until(lambda: all(h.node.engine.standing.is_known(EPOCH + 1) for h in everybody))
        assert [h.node.engine.standing.units_of(ATTESTED.account, EPOCH + 1) for h in auditors] == [0, 0, 0]
        nursery.cancel_scope.cancel()


def _refused(harness: AuditorHarness) -> int:
    return sum(event["reason"] == "no_bond" for event in harness.node.events("refused"))
