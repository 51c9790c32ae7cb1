"""Limits of a connection follow the quotas of the accounts on the islands that a node carries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from support.gossip_harness import UNPACED, GossipHarness
from support.nodes import until
from support.swarm import EPOCH, Identity, make_chain_manifest, make_manifest
from trio.testing import MockClock

from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.gossip import quotas
from sapo_client.node.gossip.quotas import HeardQuotas
from sapo_client.node.gossip.ratings import Ratings
from sapo_client.node.metrics_poller import MetricsPoller
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.terms.gate import BondGate
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.topics import rollouts_topic

ALICE, BOB = Identity(1), Identity(2)
CROWD = [Identity(number) for number in range(10, 50)]
OPEN = make_manifest(limits=Limits(slots_per_epoch=6000, max_completions=8, points_per_epoch=16))
OF_ONE = 10.0
"""Rollouts a second of one account: 6,000 slots in an epoch of a minute, which counts as ten."""

GATED = replace(
    make_chain_manifest(version=2, gate=BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32)),
    limits=OPEN.limits,
)
DIVIDED = replace(
    make_manifest(version=2, islands=IslandTerms(64, 24, period_epochs=4, most_islands=16, count=4)),
    limits=OPEN.limits,
)

Start = Callable[[Manifest], GossipHarness]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return lambda manifest: GossipHarness(MemoryHub(), ALICE, manifest, tmp_path / "alice")


def introduce(node: GossipHarness, people: Any) -> None:
    for who in people:
        node.certificates.admit(who.certificate(node.manifest).to_bytes(), node.now())


def quota(node: GossipHarness) -> float:
    return HeardQuotas(node.engine, node.transport, node.now).per_second()


def test_an_account_has_one_quota_whatever_the_number_of_its_keys(start: Start) -> None:
    node = start(OPEN)
    assert quota(node) == 0.0
    introduce(node, [BOB, Identity(2, key=1), Identity(2, key=2)])
    assert quota(node) == OF_ONE
    introduce(node, CROWD)
    assert quota(node) == OF_ONE * (1 + len(CROWD))
    introduce(node, [Identity(number) for number in range(50, 80)])
    assert quota(node) == OF_ONE * 51, "more make no difference, and are not counted"


def test_under_a_gate_only_accounts_with_a_bond_count(start: Start) -> None:
    """They count in full, with a part of a bond too: no gate raises or lowers the number of slots."""
    node = start(GATED)
    introduce(node, CROWD)
    node.engine.standing.learn(EPOCH, {CROWD[0].account: 100, CROWD[1].account: 1})
    assert quota(node) == OF_ONE * 2


async def test_with_islands_only_received_accounts_count(start: Start, autojump_clock: MockClock) -> None:
    node = start(DIVIDED)
    islands, now = node.engine.islands, node.now()
    introduce(node, CROWD)
    assert quota(node) == OF_ONE * len(CROWD), "before the node joined any"
    async with trio.open_nursery() as nursery:
        await nursery.start(node.transport.run)
        nursery.start_soon(node.run)
        await until(lambda: islands.has_joined)
        nursery.cancel_scope.cancel()
    near = [
        who
        for who in CROWD
        if {islands.home(who.account, epoch) for epoch in islands.epochs_at(now)} & {None, *islands.carried}
    ]
    assert 0 < len(near) < len(CROWD)
    assert quota(node) == OF_ONE * (len(near) + 1), "its own account besides"


@pytest.mark.parametrize(("known", "learns"), [(True, False), (False, False), (False, True)])
async def test_an_honest_relay_is_limited_only_by_nodes_that_do_not_learn_its_accounts(
    start: Start, known: bool, learns: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty accounts send ten rollouts a second each, for ten seconds.

    A node that has just started does not know them yet: it took the relay for a flooder, and cut it off.
    """
    if not learns:
        monkeypatch.setattr(quotas, "LEARNING_SECONDS", 0.0)
    node = start(OPEN)
    if known:
        introduce(node, CROWD)
    relay = MemoryTransport(node.hub, "relay", on_bug=_raise)
    relay.expect(OF_ONE * len(CROWD))
    async with watched(node, relay):
        for number in range(10 * 400):
            await relay.publish(rollouts_topic(OPEN.swarm_id) + "/of no interest", b"%d" % number)
            await trio.sleep(1 / 400)
        assert bool(node.transport.peers()) is (known or learns)
        assert bool(node.transport.counters()["flood_pauses"]) is not known


async def test_free_accounts_raise_the_rate_limit_only_to_the_ceiling(
    start: Start, autojump_clock: MockClock
) -> None:
    """An attacker introduces a crowd of keys and repeats one valid rollout 10,000 times a second."""
    node, limits, topic = start(OPEN), TransportLimits(), rollouts_topic(OPEN.swarm_id)
    introduce(node, [Identity(number) for number in range(100, 160)])
    rollout = Identity(100).message(OPEN)
    attacker = MemoryTransport(node.hub, "attacker", on_bug=_raise, limits=UNPACED)
    async with watched(node, attacker):
        for _ in range(20_000):
            await attacker.publish(topic, rollout)
            await trio.sleep(1 / 10_000)
        received = node.transport.counters()["received"]
        most = limits.rates_for(1e9).messages
        assert most.burst < received <= most.burst + 3 * most.per_second
        assert node.transport.counters()["accepted"] == 1


@asynccontextmanager
async def watched(node: GossipHarness, peer: MemoryTransport) -> AsyncIterator[None]:
    """Run a node with its poller, and a peer that is connected with it."""
    poller = MetricsPoller(
        manifest=node.manifest,
        transport=node.transport,
        chain=NoChain(),
        ratings=Ratings(node.certificates, node.reputation),
        engine=node.engine,
        records=node.gossip.records.directory,
        telemetry=node.telemetry,
        clock=node.now,
    )
    async with trio.open_nursery() as nursery:
        for transport in (node.transport, peer):
            await nursery.start(transport.run)
        nursery.start_soon(node.run)
        nursery.start_soon(poller.run)
        await peer.connect(node.address)
        yield
        nursery.cancel_scope.cancel()


def _raise(error: Exception) -> None:
    raise error
