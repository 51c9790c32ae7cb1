"""Attackers that make an honest node forward so much that its honest neighbours take it for a flooder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import EPOCH, Identity, make_chain_manifest
from trio.testing import MockClock

from sapo_client.node.gossip.certificate_quotas import OF_ACCOUNT
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.rate_limit import Meter, SendingPace
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.terms.gate import BondGate
from sapo_protocol.topics import certificates_topic, rollouts_topic
from sapo_verification.admission.certificates import MAX_NODES_PER_ACCOUNT

GATED = replace(
    make_chain_manifest(version=2, gate=BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32)),
    epoch_seconds=7200,
    limits=Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=512),
)
ALICE, BOB, MALLORY = (Identity(number) for number in range(1, 4))
CONNECTIONS: Final = 5
PER_SECOND: Final = 180
"""Of each connection of the attacker: less than a node lets it bring."""


class Neighbours:
    """Alice and Bob, who are honest and connected, and an attacker with connections to Alice alone."""

    def __init__(self, manifest: Manifest, root: Path) -> None:
        self.manifest = manifest
        hub = MemoryHub()
        self.alice = GossipHarness(hub, ALICE, manifest, root / "alice", audit_share=0.0)
        self.bob = GossipHarness(hub, BOB, manifest, root / "bob", audit_share=0.0)
        self.admit_bonds(MALLORY)
        for node in (self.alice, self.bob):
            for who in (ALICE, BOB, MALLORY):
                node.certificates.admit(who.certificate(manifest).to_bytes(), node.now())
        self.attackers = [MemoryTransport(hub, f"attacker{n}", on_bug=_raise) for n in range(CONNECTIONS)]

    def admit_bonds(self, *others: Identity) -> None:
        """Have both know the bonds of these accounts and of their own."""
        bonds = {who.account: 100 for who in (ALICE, BOB, *others)}
        for node in (self.alice, self.bob):
            node.engine.standing.learn(EPOCH, bonds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for node in (self.alice, self.bob):
                await nursery.start(node.transport.run)
                nursery.start_soon(node.run)
            await self.bob.transport.connect(self.alice.address)
            for attacker in self.attackers:
                await nursery.start(attacker.run)
                await attacker.connect(self.alice.address)
            await trio.sleep(5)
            yield
            nursery.cancel_scope.cancel()

    async def flood(self, topic: str, messages: list[bytes]) -> None:
        """Send messages over the attacker's connections in turn."""
        for number, message in enumerate(messages):
            await self.attackers[number % CONNECTIONS].publish(topic, message)
            await trio.sleep(1 / (CONNECTIONS * PER_SECOND))

    def scores(self) -> list[float]:
        """Return what Alice and Bob think of each other."""
        alice, bob = self.alice, self.bob
        return [alice.transport.score(bob.peer_id), bob.transport.score(alice.peer_id)]

    def are_connected(self) -> bool:
        return any(peer.peer_id == self.alice.peer_id for peer in self.bob.transport.peers())


async def test_many_node_keys_under_one_bond_do_not_disconnect_honest_neighbours(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Every certificate is valid, and was forwarded: Bob took Alice for a flooder within two seconds."""
    world = Neighbours(GATED, tmp_path)
    keys = [Identity(3, key=key) for key in range(1, 2000)]
    certificates = [who.certificate(GATED).to_bytes() for who in keys]
    async with world.running():
        before = world.alice.transport.counters()["accepted"]
        await world.flood(certificates_topic(GATED.swarm_id), certificates)
        assert world.are_connected()
        assert world.scores() == [0, 0]
        assert world.alice.transport.counters()["accepted"] - before == OF_ACCOUNT.burst
        allowed = keys[: int(OF_ACCOUNT.burst)]
        assert [who for who in keys if world.alice.knows(who)] == allowed[-MAX_NODES_PER_ACCOUNT:]
        late = Identity(20).certificate(GATED).to_bytes()
        world.admit_bonds(MALLORY, Identity(20))
        await world.attackers[0].publish(certificates_topic(GATED.swarm_id), late)
        await until(lambda: world.bob.knows(Identity(20)))


async def test_slots_saved_for_the_last_second_do_not_disconnect_honest_neighbours(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Two accounts send 1,200 rollouts within a second and a half, over several connections."""
    world = Neighbours(GATED, tmp_path)
    crowd = [Identity(number) for number in (10, 11)]
    world.admit_bonds(*crowd)
    for node in (world.alice, world.bob):
        for who in crowd:
            node.certificates.admit(who.certificate(GATED).to_bytes(), node.now())
    rollouts = [who.message(GATED, slot=slot) for slot in range(600) for who in crowd]
    async with world.running():
        await world.flood(rollouts_topic(GATED.swarm_id), rollouts)
        await trio.sleep(10)
        assert world.are_connected()
        assert world.scores() == [0, 0]
        assert len(world.bob.events("admitted")) > len(rollouts) / 2


async def test_the_sending_rate_of_a_relay_is_below_the_receiving_limit(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Also when what was sent within one and a half seconds arrives at once."""
    limits = TransportLimits()
    for quota in (0.0, 150.0, 400.0, 1e9):
        pace, meter = SendingPace(limits), Meter(limits)
        pace.expect(quota, 0.0)
        meter.expect(quota, 0.0)
        now, sent = 0.0, []
        while now < 30:
            now += max(pace.seconds_until("peer", 1, 4096, now), 1e-4)
            pace.spend("peer", 1, 4096, now)
            sent.append(now)
        arrived = [seconds if not 10 < seconds < 11.5 else 11.5 for seconds in sent]
        assert all(meter.take("relay", 1, 4096, seconds) for seconds in arrived)
        assert len(sent) > 0.9 * limits.rates_for(quota).messages.per_second * 30


def _raise(error: Exception) -> None:
    raise error
