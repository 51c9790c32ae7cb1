"""Equivocation in a running swarm: proved, sent to all nodes, counted once; honest nodes lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import EPOCH, Identity, make_manifest
from trio.testing import MockClock

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.equivocation import prove_equivocation
from sapo_protocol.errors import Verdict
from sapo_verification.reputation.evidence import Evidence
from sapo_verification.reputation.penalties import HARD

MANIFEST = make_manifest()
ALICE, BOB, CAROL, DORA, MALLORY = (Identity(number) for number in range(1, 6))

Start = Callable[[Identity], GossipHarness]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that creates a node that knows all identities; a second call reuses its data."""
    hub = MemoryHub()

    def make(identity: Identity) -> GossipHarness:
        node = GossipHarness(hub, identity, MANIFEST, tmp_path / str(identity.number))
        for each in (ALICE, BOB, CAROL, DORA, MALLORY):
            node.certificates.admit(each.certificate(MANIFEST).to_bytes(), node.now())
        return node

    return make


def contents(author: Identity, count: int = 2) -> list[bytes]:
    """Return different contents for one slot."""
    return [author.message(MANIFEST, completions=(b"%d" % n,)) for n in range(count)]


def evidence(node: GossipHarness, who: Identity) -> Evidence:
    return node.reputation.evidence(who.account, EPOCH)


GUILTY = Evidence(0.0, HARD, 1, EPOCH)
INNOCENT = Evidence(epoch=EPOCH)


async def test_a_node_with_one_content_gets_the_proof_from_a_node_with_both(
    start: Start, autojump_clock: MockClock
) -> None:
    nodes = [start(identity) for identity in (ALICE, BOB, CAROL, DORA)]
    one, other, third = contents(MALLORY, 3)
    async with trio.open_nursery() as nursery:
        for node in nodes:
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        for left, right in pairwise(nodes[:3]):
            await right.transport.connect(left.address)
        await until(lambda: all(node.knows(nodes[0]) for node in nodes[:3]))
        alice, _, carol, dora = nodes
        assert alice.gossip.validate_rollout(one, "mallory") is Verdict.ACCEPT
        assert alice.gossip.validate_rollout(other, "mallory") is Verdict.IGNORE
        assert alice.gossip.validate_rollout(third, "mallory") is Verdict.IGNORE
        assert carol.gossip.validate_rollout(other, "mallory") is Verdict.ACCEPT
        await until(lambda: all(evidence(node, MALLORY) == GUILTY for node in nodes[:3]))
        await dora.transport.connect(carol.address)  # it joins late, and is sent the proof
        await until(lambda: evidence(dora, MALLORY) == GUILTY)
        nursery.cancel_scope.cancel()
    for node in nodes:
        [event] = node.events("equivocation_proved")
        assert (event["account"], event["epoch"], event["slot"]) == (MALLORY.account.hex(), EPOCH, 0)
        assert (event["forwarder"] is None) == (node is alice)
        assert node.events("service_failed") == []
        assert node.reputation.is_banned(MALLORY.account, EPOCH)
        assert all(evidence(node, each) == INNOCENT for each in (ALICE, BOB, CAROL, DORA))
    assert [event["reason"] for event in alice.events("refused")] == ["equivocation"] * 2


async def test_a_restarted_node_penalises_neither_itself_nor_others(
    start: Start, autojump_clock: MockClock
) -> None:
    alice, bob = start(ALICE), start(BOB)
    async with trio.open_nursery() as nursery:
        for node in (alice, bob):
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        await bob.transport.connect(alice.address)
        await until(lambda: bob.gossip.peer_count and alice.gossip.peer_count)
        own, others = await alice.publish(slot=0), await bob.publish(slot=0)
        await until(lambda: alice.pooled() and bob.pooled())
        nursery.cancel_scope.cancel()
    again = start(ALICE)
    again.restore()
    for heard in (alice.message(own), bob.message(others)):
        assert again.gossip.validate_rollout(heard, "peer") is Verdict.IGNORE
    assert again.events("equivocation_proved") == []
    assert [evidence(again, who) for who in (ALICE, BOB)] == [INNOCENT] * 2


def test_a_second_process_with_the_own_key_is_a_warning_and_no_proof(start: Start) -> None:
    alice = start(ALICE)
    for message in contents(ALICE):
        alice.gossip.validate_rollout(message, "peer")
    [event] = alice.events("own_slot_taken_twice")
    assert (event["epoch"], event["slot"]) == (EPOCH, 0)
    assert (alice.events("equivocation_proved"), evidence(alice, ALICE)) == ([], INNOCENT)
    assert len(alice.engine.proofs) == 0


def test_the_verdict_on_a_proof_follows_the_table_of_consequences(start: Start) -> None:
    alice = start(ALICE)
    one, other = contents(MALLORY)
    message = prove_equivocation(one, other, MANIFEST.swarm_id).to_envelope().to_bytes()
    forged = message[:-1] + bytes([message[-1] ^ 1])
    assert alice.gossip.validate_proof(forged, "peer") is Verdict.REJECT
    assert alice.gossip.validate_proof(message, "peer") is Verdict.ACCEPT
    assert alice.gossip.validate_proof(message, "peer") is Verdict.IGNORE
    assert [event["reason"] for event in alice.events("refused")] == ["bad_signature"]
