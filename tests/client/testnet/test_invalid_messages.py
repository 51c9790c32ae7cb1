"""The attacker's messages: each kind breaks the rule that it is named after, at a real node's admission."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.namespaces.invalid_messages import IGNORED, KINDS, ReceivedRollouts, frame
from support.swarm import Identity, moment
from support.verification_harness import VerificationHarness

from sapo_client.testnet.attacks import AttackContext, Key
from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.topics import rollouts_topic

AUTHOR, ATTACKER = Identity(1), Identity(2)

REASONS = {
    "malformed": Reason.NOT_CANONICAL,
    "with a wrong signature": Reason.BAD_SIGNATURE,
    "repeated": Reason.SEEN,
    "repeated under another signature": Reason.SEEN,
    "of a later epoch": Reason.EPOCH_FUTURE,
    "of strangers": Reason.CERTIFICATE_UNKNOWN,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_refuses_every_message_for_the_reason_of_its_kind(kind: str) -> None:
    harness = VerificationHarness((AUTHOR,))
    manifest = harness.manifest
    now, received = moment(manifest), ReceivedRollouts(manifest)
    for slot in range(4):
        honest = AUTHOR.message(manifest, slot=slot)
        harness.engine.receive(rollouts_topic(manifest.swarm_id), honest, now)
        received.add(honest, now)
    key = Key(ATTACKER.seed, ATTACKER.node, ATTACKER.account)
    context = AttackContext(manifest, key, random.Random(0), now, (), Path())
    messages = frame(kind, received, context, 20, max_bytes=10**6)
    decisions = [
        harness.engine.receive(rollouts_topic(manifest.swarm_id), message, now) for message in messages
    ]
    assert len(messages) == 20
    assert {each.rule.reason for each in decisions if each.rule} == {REASONS[kind]}
    verdict = Verdict.IGNORE if kind in IGNORED else Verdict.REJECT
    assert [each.verdict for each in decisions] == [verdict] * 20
    assert (set(messages) <= {each.data for each in received}) is (kind == "repeated")
    assert kind == "repeated" or len(set(messages)) == 20


def test_a_frame_is_no_larger_than_asked_but_never_empty() -> None:
    manifest = VerificationHarness((AUTHOR,)).manifest
    received = ReceivedRollouts(manifest)
    received.add(AUTHOR.message(manifest), 0.0)
    received.add(b"no rollout", 0.0)
    key = Key(ATTACKER.seed, ATTACKER.node, ATTACKER.account)
    context = AttackContext(manifest, key, random.Random(0), moment(manifest), (), Path())
    size = len(AUTHOR.message(manifest))
    assert len(frame("repeated", received, context, 20, max_bytes=5 * size)) == 5
    assert len(frame("repeated", received, context, 20, max_bytes=1)) == 1
