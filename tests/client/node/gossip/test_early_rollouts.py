"""Rollouts of an epoch that has not begun by their receiver's clock: it is slow, or the author's is fast.

They are ignored when they come, and gossip delivers nothing twice. So they wait until the epoch begins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import trio
from support.gossip_harness import UNPACED, GossipHarness
from support.swarm import EPOCH, Identity, make_chain_manifest, make_manifest
from trio.testing import MockClock

from sapo_client.node.gossip.early import MAX_EARLY_SECONDS
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.envelope import Kind, SignedEnvelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.gate import BondGate
from sapo_protocol.topics import rollouts_topic

MANIFEST = make_manifest()
GATED = make_chain_manifest(version=2, gate=BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32))
ALICE, BOB, CAROL, DAVE = (Identity(number) for number in range(1, 5))
BEGIN: Final = epoch_start_seconds(MANIFEST, EPOCH)
TOPIC = rollouts_topic(MANIFEST.swarm_id)
LEAD_SECONDS: Final = 20.0
"""Between the start of the swarm and the border of the epochs."""


@dataclass
class Line:
    """Nodes in a line, each connected with the next one; every clock is wrong by some seconds.

    Attributes:
        errors: seconds by which a node's clock is ahead.
    """

    root: Path
    errors: Mapping[Identity, float]
    manifest: Manifest = MANIFEST

    def __post_init__(self) -> None:
        self.hub = MemoryHub()
        self.nodes = {who: self._make(who, error) for who, error in self.errors.items()}

    def _make(self, who: Identity, error: float) -> GossipHarness:
        def now() -> float:
            return BEGIN - LEAD_SECONDS + trio.current_time() + error

        return GossipHarness(self.hub, who, self.manifest, self.root / str(who.number), clock=now)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            before: GossipHarness | None = None
            for node in self.nodes.values():
                await nursery.start(node.transport.run)
                nursery.start_soon(node.run)
                if before is not None:
                    await node.transport.connect(before.address)
                before = node
            nodes = list(self.nodes.values())
            for node in nodes:
                for who in self.nodes:
                    if not node.knows(who) and self.manifest.gate is None:
                        node.certificates.admit(who.certificate(MANIFEST).to_bytes(), node.now())
            yield
            nursery.cancel_scope.cancel()
        assert [node.events("service_failed") for node in nodes] == [[]] * len(nodes)

    def lacking(self, ids: list[ContentId]) -> dict[int, int]:
        """Return how many of some rollouts each node lacks."""
        return {who.number: len(node.envelopes.lacking(ids)) for who, node in self.nodes.items()}

    def blamed(self) -> list[float]:
        """Return the scores of all peers at all nodes that are not zero."""
        scores = [peer.score for node in self.nodes.values() for peer in node.transport.peers()]
        return [score for score in scores if score]


async def publish_at_own_border(line: Line, author: Identity) -> list[ContentId]:
    """Publish some rollouts from the first second of an epoch on, by the author's clock; return their ids."""
    node = line.nodes[author]
    await trio.sleep(BEGIN - node.now())
    ids = []
    for slot in range(16):
        ids.append((await node.publish(slot=slot)).content_id)
        await trio.sleep(0.5)
    return ids


@pytest.mark.parametrize("ahead", [0.4, 3.0, 10.0])
async def test_an_author_with_a_fast_clock_loses_nothing(
    ahead: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Of sixteen rollouts nodes never had five with three seconds, and all with ten."""
    line = Line(tmp_path, {ALICE: ahead, BOB: 0.0, CAROL: 0.0, DAVE: 0.0})
    async with line.running():
        ids = await publish_at_own_border(line, ALICE)
        await trio.sleep(15)
        assert (line.lacking(ids), line.blamed()) == ({1: 0, 2: 0, 3: 0, 4: 0}, [])


async def test_a_node_with_a_slow_clock_loses_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Neither do those that are reached through it alone."""
    line = Line(tmp_path, {ALICE: 0.0, BOB: -5.0, CAROL: 0.0})
    async with line.running():
        ids = await publish_at_own_border(line, ALICE)
        await trio.sleep(15)
        assert (line.lacking(ids), line.blamed()) == ({1: 0, 2: 0, 3: 0}, [])


async def test_what_is_far_too_early_is_not_kept(tmp_path: Path, autojump_clock: MockClock) -> None:
    line = Line(tmp_path, {ALICE: MAX_EARLY_SECONDS + 1, BOB: 0.0})
    async with line.running():
        await trio.sleep(BEGIN - line.nodes[ALICE].now())
        early = await line.nodes[ALICE].publish()
        await trio.sleep(MAX_EARLY_SECONDS + 5)
        assert line.lacking([early.content_id]) == {1: 0, 2: 1}


async def test_who_sends_early_what_nobody_accepts_is_blamed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Honest nodes do not forward what is early, so it is the sender's."""
    line = Line(tmp_path, {ALICE: 0.0, BOB: 0.0})
    alice = line.nodes[ALICE]
    forged = SignedEnvelope(Kind.ROLLOUT, MANIFEST.swarm_id, BOB.rollout().to_payload(), b"\x01" * 64)
    mallory = MemoryTransport(line.hub, "mallory", on_bug=_raise)
    async with line.running(), trio.open_nursery() as nursery:
        await nursery.start(mallory.run)
        await mallory.connect(alice.address)
        await trio.sleep(BEGIN - 3 - alice.now())
        await mallory.publish(TOPIC, forged.to_bytes())
        await trio.sleep(1)
        assert line.blamed() == []
        await trio.sleep(5)
        assert line.lacking([forged.content_id]) == {1: 1, 2: 1}
        assert [peer.score < 0 for peer in alice.transport.peers()] == [
            peer.peer_id == "mallory" for peer in alice.transport.peers()
        ]
        nursery.cancel_scope.cancel()


async def test_a_flood_before_the_border_takes_no_place_of_an_honest_author(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Forty peers send as much as they can of what costs them no signature."""
    line = Line(tmp_path, {ALICE: 5.0, BOB: 0.0})
    bob = line.nodes[BOB]
    peers = [MemoryTransport(line.hub, f"mallory{n}", on_bug=_raise, limits=UNPACED) for n in range(40)]
    async with line.running(), trio.open_nursery() as nursery:
        for peer in peers:
            await nursery.start(peer.run)
            await peer.connect(bob.address)
        await trio.sleep(BEGIN - line.nodes[ALICE].now() - 1)
        for number, peer in enumerate(peers):
            for slot in range(100):
                forged = CAROL.rollout(slot=slot, completions=(b"%d" % number, b"7" * 8192))
                message = SignedEnvelope(Kind.ROLLOUT, MANIFEST.swarm_id, forged.to_payload(), bytes(64))
                await peer.publish(TOPIC, message.to_bytes())
        ids = await publish_at_own_border(line, ALICE)
        await trio.sleep(15)
        assert line.lacking(ids) == {1: 0, 2: 0}
        nursery.cancel_scope.cancel()


async def test_a_rollout_that_waited_for_its_certificate_is_forwarded_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Bob asks his peers for the certificate of a newcomer. Nobody but Bob brings its rollout to Carol."""
    line = Line(tmp_path, {BOB: 0.0, CAROL: 0.0})
    newcomer = MemoryTransport(line.hub, peer_id_from_key(ALICE.node), on_bug=_raise)
    async with line.running(), trio.open_nursery() as nursery:
        carol, bob = line.nodes[CAROL], line.nodes[BOB]
        carol.certificates.admit(ALICE.certificate(MANIFEST).to_bytes(), carol.now())
        await nursery.start(newcomer.run)
        await newcomer.connect(bob.address)
        sealed = ALICE.seal(MANIFEST, ALICE.rollout(epoch=EPOCH - 1))
        await newcomer.publish(TOPIC, sealed.to_bytes())
        await trio.sleep(5)
        assert len(bob.events("refused")) == 1
        assert line.lacking([sealed.content_id]) == {2: 0, 3: 0}
        nursery.cancel_scope.cancel()


async def test_a_newly_bonded_account_loses_nothing_where_bonds_are_read_late(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Bob reads the epoch's bonds five seconds after its begin; neither he nor Carol had her rollouts."""
    line = Line(tmp_path, {ALICE: 0.0, BOB: 0.0, CAROL: 0.0}, GATED)
    bonds = {who.account: 100 for who in (BOB, CAROL)}
    for node in line.nodes.values():
        node.engine.standing.learn(EPOCH - 1, bonds)
    async with line.running():
        for who in (BOB, CAROL):
            node = line.nodes[who]
            node.certificates.standing.exempt = frozenset({ALICE.account})
            if not node.knows(ALICE):
                node.certificates.admit(ALICE.certificate(GATED).to_bytes(), node.now())
        await trio.sleep(BEGIN - line.nodes[ALICE].now())
        for who in (ALICE, CAROL):
            line.nodes[who].engine.standing.learn(EPOCH, bonds | {ALICE.account: 100})
        ids = [(await line.nodes[ALICE].publish(slot=slot)).content_id for slot in range(3)]
        await trio.sleep(5)
        assert line.lacking(ids) == {1: 0, 2: 3, 3: 3}
        line.nodes[BOB].engine.standing.learn(EPOCH, bonds | {ALICE.account: 100})
        await trio.sleep(5)
        assert (line.lacking(ids), line.blamed()) == ({1: 0, 2: 0, 3: 0}, [])


def _raise(error: Exception) -> None:
    raise error
