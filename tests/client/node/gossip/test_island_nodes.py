"""Nodes of a swarm of islands on an in-memory network: received messages, moves, changes of their number."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_chain_manifest, make_manifest
from trio.testing import MockClock

from sapo_client.swarm.simulated.memory import LinkConditions, MemoryHub
from sapo_protocol.epochs import epoch_at, epoch_start_seconds
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.islands import IslandTerms
from sapo_verification.observer import Observer
from sapo_verification.types import AdmittedRollout

TERMS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=16, count=4)
FOUR = make_manifest(version=2, islands=TERMS)
TWO = make_manifest(version=2, islands=replace(TERMS, count=2))
CHANGING = make_chain_manifest(version=2, islands=replace(TERMS, count=None))
PEOPLE = tuple(Identity(number) for number in range(1, 11))

Start = Callable[..., list[GossipHarness]]


class Heard(Observer):
    """Observer that records which rollouts were admitted, each time."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Record it."""
        self.contents.append(bytes(admitted.content_id))


async def block_hash_before(moment_seconds: int) -> bytes:
    """Return a block hash that is made from the time."""
    await trio.lowlevel.checkpoint()
    return moment_seconds.to_bytes(32, "big")


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that creates a node for everybody, at the beginning of an epoch."""

    def make(manifest: Manifest, people: Sequence[Identity] = PEOPLE, **options: Any) -> list[GossipHarness]:
        hub = MemoryHub(1, LinkConditions(0.02, 0.15))
        begin = epoch_start_seconds(manifest, EPOCH) + 5
        options.setdefault("clock", lambda: begin + trio.current_time())
        if manifest.has_chain:
            options["block_hash_before"] = block_hash_before
        return [
            GossipHarness(
                hub, who, manifest, tmp_path / f"{who.number}", observers=[Heard()], audit_share=0, **options
            )
            for who in people
        ]

    return make


@asynccontextmanager
async def running(nodes: Sequence[GossipHarness]) -> AsyncIterator[None]:
    """Run nodes, each connected to all; in the end no service has failed and nobody was blamed."""
    async with trio.open_nursery() as nursery:
        for node in nodes:
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        for left, right in combinations(nodes, 2):
            await right.transport.connect(left.address)
        yield
        for node in nodes:
            assert {peer.score for peer in node.transport.peers()} == {0.0}
        nursery.cancel_scope.cancel()
    for node in nodes:
        assert node.events("service_failed") == []


def heard_by(node: GossipHarness) -> list[bytes]:
    """Return the contents that a node admitted from outside, in order, with repetitions."""
    [heard] = node.observers
    assert isinstance(heard, Heard)
    return heard.contents


def home(node: GossipHarness, epoch: int, of: GossipHarness | None = None) -> int:
    """Return a home as a node knows it."""
    found = node.engine.islands.home((of or node).identity.account, epoch)
    assert found is not None
    return found


async def settle(nodes: Sequence[GossipHarness]) -> None:
    """Wait until every node knows the members of its islands."""

    def know_each_other() -> bool:
        return all(
            node.knows(other)
            for node in nodes
            for other in nodes
            if home(node, EPOCH, other) in node.engine.islands.carried
        )

    await until(know_each_other)


async def test_each_node_is_subscribed_to_its_home_and_visited_island(
    start: Start, autojump_clock: MockClock
) -> None:
    nodes = start(FOUR)
    async with running(nodes):
        await settle(nodes)
        sent = {node.peer_id: await node.publish(slot=1) for node in nodes}
        await trio.sleep(2)
        for node in nodes:
            carried = node.engine.islands.carried
            others = [other for other in nodes if other is not node and home(node, EPOCH, other) in carried]
            assert set(heard_by(node)) == {bytes(sent[other.peer_id].content_id) for other in others}
            assert len(heard_by(node)) == len(others)
        assert any(len(heard_by(node)) < len(nodes) - 1 for node in nodes)


async def test_with_visits_rollouts_of_two_islands_reach_all_nodes(
    start: Start, autojump_clock: MockClock
) -> None:
    nodes = start(TWO, PEOPLE[:6])
    async with running(nodes):
        await settle(nodes)
        sent = [await node.publish(slot=1) for node in nodes]
        await trio.sleep(2)
        assert {home(node, EPOCH) for node in nodes} == {0, 1}
        for node, own in zip(nodes, sent, strict=True):
            expected = {bytes(one.content_id) for one in sent} - {bytes(own.content_id)}
            assert set(heard_by(node)) == expected


async def test_accounts_move_and_are_received_from_the_first_second(
    start: Start, autojump_clock: MockClock
) -> None:
    nodes = start(FOUR)
    homes = []
    async with running(nodes):
        await settle(nodes)
        for epoch in range(EPOCH, EPOCH + 6):
            await _sleep_until(nodes[0], epoch_start_seconds(FOUR, epoch) + 0.1)
            homes.append([home(node, epoch) for node in nodes])
            before = {node.peer_id: len(heard_by(node)) for node in nodes}
            for node in nodes:
                await node.publish(epoch=epoch, slot=2)
            await trio.sleep(1)
            for node in nodes:
                islands = {home(node, epoch), node.engine.islands.visit(*_names(node), epoch)}
                members = [other for other in nodes if other is not node and home(other, epoch) in islands]
                assert len(heard_by(node)) - before[node.peer_id] >= len(members)
    assert all(len(set(of_one)) > 1 for of_one in zip(*homes, strict=True))


def _names(node: GossipHarness) -> tuple[Any, Any]:
    return node.identity.node, node.identity.account


async def _sleep_until(node: GossipHarness, moment_seconds: float) -> None:
    await trio.sleep(max(0.0, moment_seconds - node.now()))


async def test_changing_from_one_to_two_to_one_islands_under_load_loses_and_doubles_nothing(
    start: Start, autojump_clock: MockClock
) -> None:
    """Rollouts every ten seconds for four epochs, also of the epoch before, while K is 1, 2, 2, 1."""
    nodes = start(CHANGING, PEOPLE[:6])
    for node in nodes:
        for epoch, paid in ((EPOCH - 2, 1), (EPOCH - 1, 1), (EPOCH, 1), (EPOCH + 1, 100), (EPOCH + 2, 100)):
            node.engine.islands.learn(epoch, [paid])
    sent: list[bytes] = []
    numbers = set()
    async with running(nodes):
        await settle(nodes)
        for step in range(4 * EPOCH_SECONDS // 10):
            epoch = epoch_at(CHANGING, nodes[0].now())
            numbers.add(nodes[0].engine.islands.count(epoch))
            for node in nodes:
                one = epoch - step % 2 if epoch > EPOCH else epoch
                sent.append(bytes((await node.publish(epoch=one, slot=step)).content_id))
            await trio.sleep(10)
        assert numbers == {1, 2}
        for node, own in ((node, set(sent[number :: len(nodes)])) for number, node in enumerate(nodes)):
            assert sorted(heard_by(node)) == sorted(set(sent) - own)  # each once, and none is missing


async def test_only_the_certificate_of_the_unknown_author_is_requested(
    start: Start, autojump_clock: MockClock
) -> None:
    """Who forwarded the first message of an unknown node is asked for that node's certificate alone."""
    nodes = start(make_manifest(), PEOPLE[:4])
    alice, bob, carol, dave = nodes
    async with running(nodes):
        await until(lambda: all(node.knows(other) for node in nodes for other in nodes))
        strangers = {carol.identity.account, dave.identity.account}
        alice.engine.certificates.forget(lambda account: account not in strangers)
        alice.gossip.validate_rollout(carol.identity.message(alice.manifest, slot=8), bob.peer_id)
        await until(lambda: alice.knows(carol))
        assert not alice.knows(dave)
