"""Withholding another author's certificate changes neither penalties nor pay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import EPOCH, Identity, make_manifest, make_suite, moment
from trio.testing import MockClock

from sapo_client.node.gossip.unintroduced import MAX_OF_A_FORWARDER
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.encoding import encode
from sapo_protocol.epochs import beacon
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.requests import parse_request, to_request
from sapo_protocol.rules import Rule
from sapo_protocol.tasks import assigned_task
from sapo_protocol.topics import (
    certificates_protocol,
    certificates_topic,
    equivocations_protocol,
    rollouts_topic,
)
from sapo_verification.tasks.generators import derive, solution

MANIFEST = make_manifest(suite=make_suite("full", ["basic_arithmetic"]), epoch_seconds=3600)
NODE, ALICE, BOB, MALLORY = (Identity(number) for number in range(1, 5))
ESSAY = " ".join(f"word{number} and{number % 7}" for number in range(60))
ROLLOUTS = rollouts_topic(MANIFEST.swarm_id)
CERTIFICATES = certificates_protocol(MANIFEST.swarm_id)
NEVER = float("inf")


def essay(author: Identity) -> bytes:
    """Return the author's group in slot 0: the same reasoning for every author, with its own answers."""
    [family] = MANIFEST.suite.families
    ground = beacon(MANIFEST.swarm_id, EPOCH, b"")
    task = assigned_task(MANIFEST.swarm_id, ground, account=author.account, family=0, slot=0)
    right = solution(family, derive(family, task.seed))
    answers = [right if number % 2 else "none" for number in range(4)]
    texts = [f"{ESSAY} take{n} {n}. <answer>{answer}</answer>" for n, answer in enumerate(answers)]
    return author.message(MANIFEST, completions=tuple(text.encode() for text in texts))


@dataclass
class Neighbour:
    """A peer without a node, which answers for certificates after some seconds."""

    identity: Identity
    hub: MemoryHub
    answer_seconds: float = 0.0
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        peer_id = peer_id_from_key(self.identity.node)
        self.transport = MemoryTransport(self.hub, peer_id, on_bug=_raise)
        self.transport.serve(CERTIFICATES, self._certificates)
        self.transport.serve(equivocations_protocol(MANIFEST.swarm_id), _nothing)

    async def _certificates(self, _peer_id: str, request: bytes) -> bytes:
        self.asked.append(request)
        if ALICE.node not in parse_request(request):
            return encode(())
        await trio.sleep(self.answer_seconds)
        return encode((ALICE.certificate(MANIFEST).to_bytes(),))

    async def send(self, message: bytes, topic: str = ROLLOUTS) -> None:
        """Send a message to all that are connected."""
        await self.transport.publish(topic, message)


@asynccontextmanager
async def running_node(root: Path, *neighbours: Neighbour) -> AsyncIterator[GossipHarness]:
    """Run a node with these neighbours, which knows Mallory's certificate and not Alice's."""
    [hub] = {id(each.hub): each.hub for each in neighbours}.values()
    node = GossipHarness(hub, NODE, MANIFEST, root, clock=lambda: moment(MANIFEST) + trio.current_time())
    async with trio.open_nursery() as nursery:
        await nursery.start(node.transport.run)
        nursery.start_soon(node.run)
        await node.beacons.obtain(EPOCH)
        for each in neighbours:
            await nursery.start(each.transport.run)
            await each.transport.connect(node.address)
        await neighbours[0].send(
            MALLORY.certificate(MANIFEST).to_bytes(), certificates_topic(MANIFEST.swarm_id)
        )
        await until(lambda: node.knows(MALLORY) and len(node.events("peer_connected")) == len(neighbours))
        yield node
        nursery.cancel_scope.cancel()
    assert node.events("service_failed") == []


async def judged(node: GossipHarness, order: Sequence[Identity]) -> dict[int, Rule | tuple[float, ...]]:
    """Return the rewards of the authors' rollouts, or the rule that one breaks, verified in an order."""
    found: dict[int, Rule | tuple[float, ...]] = {}
    for author in order:
        [admitted] = node.pool.waiting(author.account)
        try:
            found[author.number] = (await node.engine.verify(admitted)).rewards
        except RemoteProtocolError as error:
            found[author.number] = error.rule
    return found


HALF = (0, 1, 0, 1)


@pytest.mark.parametrize("introduced", [True, False])
@pytest.mark.parametrize(
    ("copied_seconds", "answered_seconds", "order", "expected"),
    [
        (0.1, 9.0, (MALLORY, ALICE), {MALLORY.number: HALF, ALICE.number: HALF}),
        (6.0, 9.0, (ALICE, MALLORY), {ALICE.number: HALF, MALLORY.number: Rule.OWN_WORK}),
    ],
)
async def test_withholding_a_certificate_does_not_change_the_order_of_arrival(
    tmp_path: Path,
    autojump_clock: MockClock,
    introduced: bool,
    copied_seconds: float,
    answered_seconds: float,
    order: Sequence[Identity],
    expected: dict[int, Rule | tuple[float, ...]],
) -> None:
    mallory = Neighbour(MALLORY, MemoryHub(), answered_seconds)
    async with running_node(tmp_path, mallory) as node:
        if introduced:
            await mallory.send(ALICE.certificate(MANIFEST).to_bytes(), certificates_topic(MANIFEST.swarm_id))
            await until(lambda: node.knows(ALICE))
        await mallory.send(essay(ALICE))
        await trio.sleep(copied_seconds)
        await mallory.send(essay(MALLORY))
        await until(lambda: len(node.pooled()) == 2)
        assert await judged(node, order) == expected
        bad = [node.reputation.evidence(each.account, EPOCH).bad for each in order]
    assert bad == [float(isinstance(found, Rule)) / 2 for found in expected.values()]


async def test_another_forwarder_is_asked_if_the_first_one_does_not_answer(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    mallory, bob = Neighbour(MALLORY, hub, NEVER), Neighbour(BOB, hub)
    async with running_node(tmp_path, mallory, bob) as node:
        await mallory.send(essay(ALICE))
        await trio.sleep(0.2)
        await bob.send(essay(ALICE))
        await until(lambda: node.knows(ALICE), seconds=2)
        [heard] = node.pool.waiting(ALICE.account)
    assert [each.asked for each in (mallory, bob)] == [[b"", to_request([ALICE.node])]] * 2
    assert heard.rollout.slot == 0


async def test_a_certificate_that_arrived_meanwhile_is_not_requested(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    mallory, bob = Neighbour(MALLORY, hub), Neighbour(BOB, hub)
    async with running_node(tmp_path, mallory, bob) as node:
        await mallory.send(essay(ALICE))
        await bob.send(essay(ALICE))
        await bob.send(ALICE.certificate(MANIFEST).to_bytes(), certificates_topic(MANIFEST.swarm_id))
        await until(lambda: len(node.pooled()) == 1)
        await trio.sleep(5)
    assert [each.asked for each in (mallory, bob)] == [[b""]] * 2


async def test_the_first_forwarder_cannot_evict_a_message_that_others_forward(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    mallory, bob = Neighbour(MALLORY, hub, NEVER), Neighbour(BOB, hub, 3.0)
    async with running_node(tmp_path, mallory, bob) as node:
        await mallory.send(essay(ALICE))
        await bob.send(essay(ALICE))
        for number in range(MAX_OF_A_FORWARDER + 1):
            await mallory.send(Identity(100 + number).message(MANIFEST))
        await until(lambda: node.knows(ALICE))
        [heard] = node.pool.waiting(ALICE.account)
    assert heard.rollout.slot == 0


async def test_an_evicted_message_that_returns_keeps_its_first_arrival_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    mallory, bob = Neighbour(MALLORY, hub), Neighbour(BOB, hub)
    async with running_node(tmp_path, mallory, bob) as node:
        mallory.answer_seconds = 6.0
        await mallory.send(essay(ALICE))
        for number in range(MAX_OF_A_FORWARDER):
            await mallory.send(Identity(100 + number).message(MANIFEST))
        await mallory.send(essay(MALLORY))
        await until(lambda: node.knows(ALICE))
        assert list(node.pool.waiting(ALICE.account)) == []
        await bob.send(essay(ALICE))
        await until(lambda: len(node.pooled()) == 2)
        assert await judged(node, (MALLORY, ALICE)) == {MALLORY.number: HALF, ALICE.number: HALF}


async def _nothing(_peer_id: str, _request: bytes) -> bytes:
    return encode(())


def _raise(error: Exception) -> None:
    raise error
