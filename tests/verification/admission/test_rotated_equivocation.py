"""An account signs two contents for one slot with two keys, and has the first key's certificate displaced."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import EPOCH, GENESIS_SECONDS, Identity, make_manifest, moment
from support.verification_harness import VerificationHarness
from trio.testing import MockClock

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.errors import Verdict
from sapo_protocol.topics import certificates_topic, rollouts_topic
from sapo_verification.admission import displaced as displaced_module
from sapo_verification.admission.certificates import MAX_NODES_PER_ACCOUNT

MANIFEST = make_manifest()
NOW = moment(MANIFEST)
ALICE, BOB = Identity(1), Identity(3)
MALLORYS = [Identity(2, key) for key in range(2 * MAX_NODES_PER_ACCOUNT)]


def content(key: Identity, text: bytes, slot: int = 0) -> bytes:
    return key.message(MANIFEST, slot=slot, completions=(text, b"no answer"))


def heard(node: VerificationHarness, *messages: tuple[str, bytes]) -> Sequence[object]:
    return [node.engine.receive(topic, message, NOW).verdict for topic, message in messages]


def test_contents_under_displaced_and_present_keys_prove_an_equivocation() -> None:
    node = VerificationHarness((ALICE,), MANIFEST, own=ALICE.account)
    certificates, rollouts = certificates_topic(MANIFEST.swarm_id), rollouts_topic(MANIFEST.swarm_id)
    first, *others = MALLORYS[: MAX_NODES_PER_ACCOUNT + 1]
    heard(node, (certificates, first.certificate(MANIFEST).to_bytes()), (rollouts, content(first, b"one")))
    heard(node, *((certificates, each.certificate(MANIFEST).to_bytes()) for each in others))
    heard(node, (rollouts, content(others[0], b"two")))
    assert node.reputation.is_banned(first.account, EPOCH)
    assert len(node.engine.proofs) == 1


def test_a_certificate_that_was_renewed_before_it_was_displaced_counts_too() -> None:
    node = VerificationHarness((ALICE,), MANIFEST, own=ALICE.account)
    certificates, rollouts = certificates_topic(MANIFEST.swarm_id), rollouts_topic(MANIFEST.swarm_id)
    first, *others = MALLORYS[: MAX_NODES_PER_ACCOUNT + 1]
    renewed = first.certificate(MANIFEST, not_after=GENESIS_SECONDS + 100_000).to_bytes()
    heard(node, (certificates, first.certificate(MANIFEST).to_bytes()), (rollouts, content(first, b"one")))
    heard(node, (certificates, renewed))
    heard(node, *((certificates, each.certificate(MANIFEST).to_bytes()) for each in others))
    assert node.engine.certificates.envelopes_of([first.node]) == (renewed,)
    heard(node, (rollouts, content(others[0], b"two")))
    assert node.reputation.is_banned(first.account, EPOCH)


def test_displaced_certificates_are_bounded_and_admit_no_new_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(displaced_module, "MAX_DISPLACED", 2)
    node = VerificationHarness((ALICE,), MANIFEST, own=ALICE.account)
    certificates, rollouts = certificates_topic(MANIFEST.swarm_id), rollouts_topic(MANIFEST.swarm_id)
    for slot, each in enumerate(MALLORYS):
        sent = content(each, b"text", slot)
        assert heard(node, (certificates, each.certificate(MANIFEST).to_bytes()), (rollouts, sent)) == [
            Verdict.ACCEPT,
            Verdict.ACCEPT,
        ]
    store = node.engine.certificates
    known = [len(store.envelopes_of([each.node])) for each in MALLORYS]
    assert known == [0, 0, 1, 1, 1, 1, 1, 1]
    assert heard(node, (rollouts, content(MALLORYS[3], b"more", 9))) == [Verdict.IGNORE]
    again = (certificates, MALLORYS[3].certificate(MANIFEST).to_bytes())
    assert heard(node, again, (rollouts, content(MALLORYS[3], b"more", 9))) == [
        Verdict.ACCEPT,
        Verdict.ACCEPT,
    ]
    assert len(store.envelopes_of([each.node for each in MALLORYS])) == MAX_NODES_PER_ACCOUNT + 1


async def test_a_node_without_the_first_keys_certificate_gets_it_with_the_proof(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    alice, bob = (GossipHarness(hub, who, MANIFEST, tmp_path / str(who.number)) for who in (ALICE, BOB))
    first, *others = MALLORYS[: MAX_NODES_PER_ACCOUNT + 1]
    for node in (alice, bob):
        for each in (ALICE, BOB, *([first] if node is alice else []), *others[:-1]):
            node.certificates.admit(each.certificate(MANIFEST).to_bytes(), node.now())
    async with trio.open_nursery() as nursery:
        for node in (alice, bob):
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        await bob.transport.connect(alice.address)
        await until(lambda: bob.gossip.peer_count and alice.gossip.peer_count)
        alice.gossip.validate_rollout(content(first, b"one"), "mallory")
        alice.gossip.validate_certificate(others[-1].certificate(MANIFEST).to_bytes(), "mallory")
        alice.gossip.validate_rollout(content(others[0], b"two"), "mallory")
        assert alice.reputation.is_banned(first.account, EPOCH)
        await until(lambda: bob.reputation.is_banned(first.account, EPOCH))
        nursery.cancel_scope.cancel()
