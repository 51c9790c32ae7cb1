"""Every kind of attack against the real admission, verifier and auditor."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from nacl.signing import SigningKey
from support.verification_harness import VerificationHarness

from sapo_client.testnet.attacks import (
    ATTACKS,
    BY_NAME,
    SEEN_SECONDS,
    AttackContext,
    Key,
    Message,
    ObservedRollout,
    ObservedRollouts,
)
from sapo_protocol import secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.contributions import parse_tally
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, parse_envelope, seal
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.suite import Suite
from sapo_protocol.topics import certificates_topic, contributions_topic, rollouts_topic
from sapo_verification.admission.arrivals import Received
from sapo_verification.engine import Engine
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.suites import catalogue
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import Check

GENESIS = 1_800_000_000
EPOCH_SECONDS = 30
NOW = GENESIS + 5 * EPOCH_SECONDS + 10.0
FAMILIES = ("base_conversion", "basic_arithmetic", "binary_matrix", "decimal_arithmetic")


def key(number: int) -> tuple[Key, bytes]:
    """A signer and the secret of its account."""
    seed, secret = bytes([number]) * 32, bytes([number, 1]) * 16
    node = NodeId(bytes(SigningKey(seed).verify_key))
    return Key(seed, node, secp256k1.account_of(secret)), secret


@pytest.fixture
def manifest() -> Manifest:
    families = tuple(catalogue.family(name, "nano") for name in FAMILIES)
    return Manifest(
        name="test",
        bootstrap=(),
        chain_id=7,
        registry=Account(bytes([1]) * 20),
        ledger=Account(bytes([2]) * 20),
        finality_seconds=0,
        genesis_seconds=GENESIS,
        epoch_seconds=EPOCH_SECONDS,
        suite=Suite(catalogue.REASONING_GYM, families, Digest(bytes(32))),
        limits=Limits(slots_per_epoch=64, max_completions=8, points_per_epoch=64),
    )


def introduce(engine: Engine, manifest: Manifest, number: int) -> Key:
    """Return a key whose certificate the engine holds."""
    signer, secret = key(number)
    binding = NodeBinding(signer.node, manifest.swarm_id, GENESIS, GENESIS + 86_400)
    certificate = issue_certificate(signer.seed, secret, binding, manifest.binding_domain)
    engine.receive(certificates_topic(manifest.swarm_id), certificate.to_bytes(), NOW)
    return signer


def honest_rollout(
    manifest: Manifest, author: Key, epoch: int, slot: int, at_seconds: float
) -> ObservedRollout:
    completions = tuple(f"{slot + index % 3}".encode() for index in range(8))
    rollout = Rollout(author.node, author.account, epoch, slot, 0, completions)
    envelope = seal(Kind.ROLLOUT, manifest.swarm_id, rollout.to_payload(), author.seed)
    return ObservedRollout(at_seconds, envelope.to_bytes(), envelope, rollout)


class Bench:
    """An honest node's admission, and the context of an attacker that observed what it admitted."""

    def __init__(self, manifest: Manifest, tmp_path: Path, seed: int, check: Check | None = None) -> None:
        self.manifest = manifest
        self.harness = VerificationHarness((), manifest=manifest, check=check)
        author = introduce(self.harness.engine, manifest, 1)
        old = NOW - SEEN_SECONDS - 5
        old_epoch = int(old - GENESIS) // EPOCH_SECONDS
        observed = [honest_rollout(manifest, author, old_epoch, slot, old) for slot in range(3)]
        observed += [honest_rollout(manifest, author, 5, slot, NOW - 5) for slot in range(4)]
        for message in observed:
            self.receive(message.data, message.at_seconds)
        self.attacker = introduce(self.harness.engine, manifest, 2)
        self.context = AttackContext(manifest, self.attacker, random.Random(seed), NOW, observed, tmp_path)

    def make(self, name: str) -> Sequence[Message]:
        attack = BY_NAME[name]
        if not attack.certified:
            self.context.key = key(3)[0]
        return attack.make(self.context)

    def refusal(self, message: Message) -> Reason | None:
        rule = self.receive(message.data, NOW).rule
        return rule.reason if rule else None

    def receive(self, data: bytes, now_seconds: float) -> Received:
        return self.harness.engine.receive(rollouts_topic(self.manifest.swarm_id), data, now_seconds)


STAGE_7_KINDS = [
    attack.name
    for attack in ATTACKS
    if attack.name not in ("copied_answers", "code_in_answer", "false_tally", "flood")
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", STAGE_7_KINDS)
def test_admission_refuses_every_message_for_the_expected_reason(
    name: str, seed: int, manifest: Manifest, tmp_path: Path
) -> None:
    bench = Bench(manifest, tmp_path, seed)
    messages = bench.make(name)
    assert messages
    verdicts = [(bench.refusal(message), message.bait) for message in messages]
    assert {reason for reason, bait in verdicts if not bait} <= BY_NAME[name].expected
    assert {reason for reason, bait in verdicts if bait} <= {None}
    assert all(message.topic == rollouts_topic(manifest.swarm_id) for message in messages)


def test_a_flood_breaks_no_other_rule(manifest: Manifest, tmp_path: Path) -> None:
    bench = Bench(manifest, tmp_path, 0)
    messages = bench.make("flood")
    assert len({message.data for message in messages}) == len(messages) == 1600
    assert {bench.refusal(message) for message in messages} == {Reason.EPOCH_FUTURE}


def test_a_false_tally_is_authentic_but_its_author_is_no_auditor(manifest: Manifest, tmp_path: Path) -> None:
    bench = Bench(manifest, tmp_path, 0)
    (message,) = bench.make("false_tally")
    envelope = parse_envelope(message.data, manifest.swarm_id)
    tally = parse_tally(envelope.payload)
    assert message.topic == contributions_topic(manifest.swarm_id)
    assert envelope.is_signed_by(bench.attacker.node)
    assert (tally.epoch, tally.account, tally.points) == (
        4,
        bench.attacker.account,
        ((bench.attacker.account, 1_000_000),),
    )


@pytest.mark.parametrize("level", ["nano", "full"])
async def test_code_and_copies_pass_admission_and_earn_nothing(
    level: str, manifest: Manifest, tmp_path: Path, nursery: trio.Nursery
) -> None:
    families = tuple(catalogue.family(name, level) for name in FAMILIES)
    manifest = replace(manifest, suite=replace(manifest.suite, families=families))
    checkers = CheckerPool(manifest.suite)
    await nursery.start(checkers.run)
    bench = Bench(manifest, tmp_path, 0, check=checkers.check)
    expected = []
    for name in ("code_in_answer", "copied_answers"):
        for message in bench.make(name):
            admitted = bench.receive(message.data, NOW).admitted
            assert isinstance(admitted, AdmittedRollout)
            await bench.harness.engine.verify(admitted)
            (reason,) = BY_NAME[name].expected
            expected.append((reason, message.content_id))
    assert [(reason, content_id) for reason, content_id, _ in bench.harness.record.refusals] == expected
    assert list(tmp_path.iterdir()) == []


def test_attacks_that_need_earlier_messages_make_none_before(manifest: Manifest, tmp_path: Path) -> None:
    bench = Bench(manifest, tmp_path, 0)
    bench.context.now_seconds = GENESIS + 1.0
    bench.context.observed = ()
    waiting = {attack.name for attack in ATTACKS if not attack.make(bench.context)}
    assert waiting == {"epoch_past", "late_replay", "replay", "copied_answers", "false_tally"}


def test_the_first_and_the_latest_rollouts_are_kept(manifest: Manifest) -> None:
    hearing = ObservedRollouts(first=2, latest=3)
    observed = [honest_rollout(manifest, key(1)[0], 5, slot, NOW) for slot in range(9)]
    for one in observed:
        hearing.add(one)
    assert hearing.all() == (*observed[:2], *observed[-3:])


def test_attacks_are_reproducible(manifest: Manifest, tmp_path: Path) -> None:
    def rounds() -> list[Sequence[Message]]:
        bench = Bench(manifest, tmp_path, 7)
        return [attack.make(bench.context) for attack in ATTACKS]

    assert rounds() == rounds()
