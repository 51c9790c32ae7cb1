"""What it costs a node that peers forward rollouts of authors whose certificates they never send."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio
from support.gossip_harness import GossipHarness
from support.swarm import Identity, make_manifest
from trio.testing import MockClock

from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope
from sapo_protocol.identifiers import NodeId
from sapo_protocol.topics import certificates_protocol, equivocations_protocol, rollouts_topic

MANIFEST = make_manifest()
SWARM = MANIFEST.swarm_id
ALICE, CAROL = Identity(1), Identity(3)
MINUTES: Final = 2
OTHERS = CAROL.certificate(MANIFEST).to_bytes()
FULL = encode((OTHERS,) * ((MAX_ANSWER_BYTES - 1024) // (len(OTHERS) + 3)))
"""A full answer, which holds nobody's certificate who was asked for."""


class Stranger:
    """A peer that forwards a rollout of a new author each second, and answers as it likes."""

    def __init__(self, hub: MemoryHub, number: int, answer: bytes) -> None:
        self.transport = MemoryTransport(hub, f"stranger{number}", on_bug=_raise)
        self.number = number
        self.answer = answer
        self.sent_bytes = 0
        self.transport.serve(certificates_protocol(SWARM), self._certificates)
        self.transport.serve(equivocations_protocol(SWARM), self._nothing)

    async def _nothing(self, _peer_id: str, _request: bytes) -> bytes:
        return encode(())

    async def _certificates(self, _peer_id: str, request: bytes) -> bytes:
        if not request:
            return encode(())
        self.sent_bytes += len(self.answer)
        return self.answer

    async def forward(self) -> None:
        for second in range(60 * MINUTES):
            node = NodeId(bytes([self.number]) + second.to_bytes(31, "big"))
            rollout = CAROL.rollout(node=node)
            message = SignedEnvelope(Kind.ROLLOUT, SWARM, rollout.to_payload(), b"\x01" * 64).to_bytes()
            await self.transport.publish(rollouts_topic(SWARM), message)
            await trio.sleep(1)


async def test_a_peer_that_never_sends_requested_certificates_is_asked_less_often(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    alice = GossipHarness(hub, ALICE, MANIFEST, tmp_path / "alice")
    strangers = [Stranger(hub, number, FULL) for number in range(2)]
    async with trio.open_nursery() as nursery:
        await nursery.start(alice.transport.run)
        nursery.start_soon(alice.run)
        for stranger in strangers:
            await nursery.start(stranger.transport.run)
            await stranger.transport.connect(alice.address)
        await trio.sleep(5)
        async with trio.open_nursery() as forwarding:
            for stranger in strangers:
                forwarding.start_soon(stranger.forward)
        nursery.cancel_scope.cancel()

    assert max(stranger.sent_bytes for stranger in strangers) < 12 * MAX_ANSWER_BYTES


async def test_a_peer_that_sends_them_is_asked_each_second(tmp_path: Path, autojump_clock: MockClock) -> None:
    """An honest one has the certificate of each author whose rollouts it forwards."""
    hub = MemoryHub()
    alice = GossipHarness(hub, ALICE, MANIFEST, tmp_path / "alice", audit_share=0.0)
    honest = Stranger(hub, 1, b"")
    crowd = [Identity(number) for number in range(100, 130)]
    async with trio.open_nursery() as nursery:
        await nursery.start(alice.transport.run)
        nursery.start_soon(alice.run)
        await nursery.start(honest.transport.run)
        await honest.transport.connect(alice.address)
        await trio.sleep(5)
        for who in crowd:
            honest.answer = encode((who.certificate(MANIFEST).to_bytes(),))
            await honest.transport.publish(rollouts_topic(SWARM), who.message(MANIFEST))
            await trio.sleep(1.5)
        nursery.cancel_scope.cancel()
    assert all(alice.knows(who) for who in crowd)
    assert len(alice.events("admitted")) == len(crowd)


def _raise(error: Exception) -> None:
    raise error
