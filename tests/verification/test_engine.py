"""The engine: one decision per message, all its effects in one transaction, the same after a restart."""

from pathlib import Path
from typing import Any

import pytest
from support.crashing import CrashControl, Killed, WriteBudget
from support.swarm import EPOCH, Identity, moment
from support.verification_harness import VerificationHarness

from sapo_protocol.constants import CLOCK_SLACK_SECONDS, EPOCH_WINDOW, PROOF_EPOCHS
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.equivocation import EquivocationProof, open_proof, prove_equivocation
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.rules import Rule
from sapo_protocol.topics import certificates_topic, contributions_topic, equivocations_topic, rollouts_topic
from sapo_verification.admission.arrivals import Received
from sapo_verification.admission.envelope_store import KEPT_EPOCHS
from sapo_verification.engine import Engine
from sapo_verification.observer import Observer
from sapo_verification.reputation.evidence import Evidence
from sapo_verification.reputation.penalties import HARD
from sapo_verification.sampling.pool import PoolLimits
from sapo_verification.types import AdmittedRollout, VerifiedRollout

ALICE, BOB, MALLORY, OWN = (Identity(number) for number in range(1, 5))


class Record(Observer):
    """Observer that records the name and source of each decision."""

    def __init__(self) -> None:
        self.decisions: list[tuple[Any, ...]] = []

    def message_refused(self, error: RemoteProtocolError, message: bytes, source: str) -> None:
        """Record a refused message."""
        self.decisions.append(("message_refused", error.rule, source))

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Record an admission."""
        self.decisions.append(("admitted", admitted.account, source))

    def queued(self, admitted: AdmittedRollout) -> None:
        """Record a queued audit."""
        self.decisions.append(("queued", admitted.account))

    def displaced(self, admitted: AdmittedRollout) -> None:
        """Record an audit that lost its place."""
        self.decisions.append(("displaced", admitted.account))

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Record a refused rollout."""
        self.decisions.append(("refused", rule, admitted.account))

    def verified(self, rollout: VerifiedRollout) -> None:
        """Record a verified rollout."""
        self.decisions.append(("verified", rollout.account))

    def proved(self, proof: EquivocationProof, source: str | None) -> None:
        """Record a proof."""
        self.decisions.append(("proved", proof.account, source))

    def own_slot_conflict(self, epoch: int, slot: int) -> None:
        """Record a conflict."""
        self.decisions.append(("own_slot_conflict", epoch, slot))


def open_engine(**options: Any) -> tuple[VerificationHarness, Record]:
    """Return an engine that knows all identities, and the record of its decisions."""
    harness = VerificationHarness((ALICE, BOB, OWN), own=OWN.account, **options)
    record = Record()
    harness.engine.observe(record)
    return harness, record


def receive(harness: VerificationHarness, topic: str, message: bytes, **options: Any) -> Received:
    """Let the engine receive a message in the middle of the epoch."""
    return harness.engine.receive(topic, message, moment(harness.manifest), **options)


def test_a_rollout_is_admitted_pooled_stored_and_queued() -> None:
    harness, record = open_engine()
    topic, message = rollouts_topic(harness.manifest.swarm_id), ALICE.message(harness.manifest)
    received = receive(harness, topic, message, source="peer")
    assert isinstance(received.admitted, AdmittedRollout)
    assert received == Received(Verdict.ACCEPT, None, received.admitted)
    assert list(harness.pool.waiting()) == [received.admitted]
    assert harness.engine.envelopes.envelope(received.admitted.content_id) == message
    assert harness.engine.audits.take().admitted is received.admitted
    again = receive(harness, topic, message, source="other")
    assert again == Received(Verdict.IGNORE, Rule.ROLLOUT_NEW)
    assert record.decisions == [
        ("admitted", ALICE.account, "peer"),
        ("queued", ALICE.account),
        ("message_refused", Rule.ROLLOUT_NEW, "other"),
    ]


def test_past_messages_of_a_peer_may_be_known_or_expired() -> None:
    harness, record = open_engine()
    topic = rollouts_topic(harness.manifest.swarm_id)
    known, over = ALICE.message(harness.manifest), ALICE.message(harness.manifest, epoch=EPOCH - 2)
    receive(harness, topic, known)
    record.decisions.clear()
    assert receive(harness, topic, known, live=False) == Received(Verdict.IGNORE, Rule.ROLLOUT_NEW)
    assert receive(harness, topic, over, live=False) == Received(Verdict.IGNORE, Rule.ROLLOUT_IN_TIME)
    assert record.decisions == []


def test_a_rollout_that_the_pool_refuses_is_forwarded_and_never_audited() -> None:
    harness, record = open_engine(limits=PoolLimits(per_account=0))
    received = receive(harness, rollouts_topic(harness.manifest.swarm_id), ALICE.message(harness.manifest))
    assert (received.verdict, received.rule) == (Verdict.ACCEPT, Rule.ACCOUNT_QUOTA)
    assert isinstance(received.admitted, AdmittedRollout)
    assert harness.engine.count.is_decided(received.admitted.content_id)
    assert len(harness.engine.audits) == 0
    assert record.decisions == [
        ("admitted", ALICE.account, ""),
        ("refused", Rule.ACCOUNT_QUOTA, ALICE.account),
    ]


def test_a_rollout_of_another_machine_of_the_own_account_is_neither_pooled_nor_audited(
    tmp_path: Path,
) -> None:
    harness, record = open_engine(database=tmp_path / "node.sqlite")
    message = OWN.message(harness.manifest)
    received = receive(harness, rollouts_topic(harness.manifest.swarm_id), message)
    assert received.verdict is Verdict.ACCEPT
    assert (len(harness.pool), len(harness.engine.audits)) == (0, 0)
    assert record.decisions == [("admitted", OWN.account, "")]
    again, _ = open_engine(database=tmp_path / "node.sqlite")
    again.engine.restore(moment(again.manifest))
    assert len(again.engine.audits) == 0


async def test_an_own_rollout_that_was_not_verified_before_a_crash_is_verified_after_it(
    tmp_path: Path,
) -> None:
    harness, _ = open_engine(database=tmp_path / "node.sqlite")
    admitted = harness.admit(OWN, 0)
    again, _ = open_engine(database=tmp_path / "node.sqlite")
    again.engine.restore(moment(again.manifest))
    turn = again.engine.audits.take()
    assert turn.admitted == admitted
    await again.engine.verify(turn.admitted)
    assert again.engine.count.points(EPOCH, [OWN.account], 16) == ((OWN.account, 1),)


def test_a_rollout_from_before_a_restart_under_a_wrong_clock_is_known(tmp_path: Path) -> None:
    """While the clock is behind, what is stored lies in the future and is not admitted again."""
    harness, _ = open_engine(database=tmp_path / "node.sqlite")
    harness.receive(ALICE, 0)
    again, record = open_engine(database=tmp_path / "node.sqlite")
    again.engine.restore(moment(again.manifest, EPOCH - 2))
    assert list(again.pool.waiting()) == []
    assert again.receive(ALICE, 0) == Received(Verdict.IGNORE, Rule.ROLLOUT_NEW)
    assert record.decisions == []


def test_rollouts_are_audited_as_far_as_they_are_drawn_and_have_a_place() -> None:
    harness, record = open_engine(audits_waiting=1)
    for author, slot in ((ALICE, 0), (ALICE, 1), (BOB, 0)):
        harness.receive(author, slot)
    assert record.decisions == [
        *(("admitted", ALICE.account, ""), ("queued", ALICE.account)),
        *(("admitted", ALICE.account, ""), ("displaced", ALICE.account)),
        *(("admitted", BOB.account, ""), ("displaced", ALICE.account), ("queued", BOB.account)),
    ]
    harness, record = open_engine(audit_share=0.0)
    harness.receive(ALICE, 0)
    assert record.decisions == [("admitted", ALICE.account, "")]
    assert len(harness.engine.audits) == 0


def test_a_second_content_without_the_stored_first_is_refused_without_a_proof() -> None:
    harness, record = open_engine()
    harness.receive(ALICE, 0)
    harness.engine.envelopes.forget(EPOCH + KEPT_EPOCHS + 1)
    record.decisions.clear()
    assert harness.receive(ALICE, 0, wrong=2) == Received(Verdict.IGNORE, Rule.ONE_CONTENT)
    assert record.decisions == [("message_refused", Rule.ONE_CONTENT, "")]
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(epoch=EPOCH)


def test_signed_slots_are_stored_as_long_as_their_rollouts_are_admitted() -> None:
    """Memory of a node does not grow with its age, only with what is said in an epoch."""
    harness, _ = open_engine()
    for slot in range(4):
        harness.receive(ALICE, slot)
    end = epoch_start_seconds(harness.manifest, EPOCH + EPOCH_WINDOW + 1) + CLOCK_SLACK_SECONDS
    last = end - 1
    harness.engine.forget(harness.engine.epoch(last))
    topic, message = rollouts_topic(harness.manifest.swarm_id), harness.message(ALICE, 0, wrong=2)
    assert harness.engine.receive(topic, message, last).rule is Rule.ONE_CONTENT
    assert len(harness.engine.admission) == 4
    harness.engine.forget(EPOCH + EPOCH_WINDOW + 2)
    assert len(harness.engine.admission) == 0
    assert harness.engine.receive(topic, message, end).rule is Rule.ROLLOUT_IN_TIME


def test_a_second_content_becomes_a_proof_to_publish() -> None:
    harness, record = open_engine()
    topic = rollouts_topic(harness.manifest.swarm_id)
    one, other = (ALICE.message(harness.manifest, completions=(text,)) for text in (b"1", b"2"))
    receive(harness, topic, one)
    record.decisions.clear()
    received = receive(harness, topic, other, source="peer")
    proof = prove_equivocation(one, other, harness.manifest.swarm_id)
    assert received == Received(Verdict.IGNORE, Rule.ONE_CONTENT, proof=proof.to_envelope().to_bytes())
    assert record.decisions == [
        ("proved", ALICE.account, None),
        ("message_refused", Rule.ONE_CONTENT, "peer"),
    ]
    harness.engine.forget(EPOCH + PROOF_EPOCHS)
    assert len(harness.engine.proofs) == 1
    harness.engine.forget(EPOCH + PROOF_EPOCHS + 1)
    assert len(harness.engine.proofs) == 0
    assert harness.reputation.evidence(ALICE.account, EPOCH) == Evidence(0.0, HARD, 1, EPOCH)


def test_a_certificate_that_ended_between_two_contents_causes_no_penalty() -> None:
    """The proof needs both certificates; without one there is none, and the forwarder did nothing wrong."""
    harness, record = open_engine()
    topic = rollouts_topic(harness.manifest.swarm_id)
    first_key, second_key = Identity(7), Identity(7, key=1)
    now, ending = moment(harness.manifest), int(moment(harness.manifest)) + 1
    certificates = harness.engine.certificates
    certificates.admit(first_key.certificate(harness.manifest, not_after=ending).to_bytes(), now)
    certificates.admit(second_key.certificate(harness.manifest).to_bytes(), now)
    harness.engine.receive(topic, first_key.message(harness.manifest, completions=(b"1",)), now)
    record.decisions.clear()
    other = second_key.message(harness.manifest, completions=(b"2",))
    received = harness.engine.receive(topic, other, now + 5, source="peer")
    assert received == Received(Verdict.IGNORE, Rule.ONE_CONTENT)
    assert record.decisions == [("message_refused", Rule.ONE_CONTENT, "peer")]


def test_a_second_content_of_the_own_account_is_reported_and_not_proved() -> None:
    harness, record = open_engine()
    topic = rollouts_topic(harness.manifest.swarm_id)
    for text in (b"1", b"2"):
        receive(harness, topic, OWN.message(harness.manifest, completions=(text,)))
    assert record.decisions[1:] == [
        ("own_slot_conflict", EPOCH, 0),
        ("message_refused", Rule.ONE_CONTENT, ""),
    ]
    assert harness.engine.proofs.messages() == ()


def test_each_topic_has_its_own_objects() -> None:
    harness, record = open_engine()
    swarm_id = harness.manifest.swarm_id
    certificate = MALLORY.certificate(harness.manifest).to_bytes()
    assert receive(harness, certificates_topic(swarm_id), certificate).verdict is Verdict.ACCEPT
    assert receive(harness, certificates_topic(swarm_id), certificate).rule is Rule.CERTIFICATE_NEW
    contents = [ALICE.message(harness.manifest, completions=(text,)) for text in (b"1", b"2")]
    proof = prove_equivocation(contents[0], contents[1], swarm_id).to_envelope()
    received = receive(harness, equivocations_topic(swarm_id), proof.to_bytes(), source="peer")
    assert received.admitted == open_proof(parse_envelope(proof.to_bytes(), swarm_id))
    assert receive(harness, contributions_topic(swarm_id), certificate).rule is Rule.TOPIC_KIND
    assert record.decisions == [
        ("proved", ALICE.account, "peer"),
        ("message_refused", Rule.TOPIC_KIND, ""),
    ]
    with pytest.raises(KeyError):
        receive(harness, "another topic", certificate)


@pytest.mark.parametrize("writes", range(8))
async def test_a_verification_is_stored_whole_or_not_at_all(tmp_path: Path, writes: int) -> None:
    """A process ends before one of its writes: evidence and pay count agree, and the audit is repeated."""
    harness, _ = open_engine(database=tmp_path / "node.sqlite")
    received = harness.receive(ALICE, 0)
    assert isinstance(received.admitted, AdmittedRollout)
    crashes = CrashControl(WriteBudget(writes))
    crashes.wrap_engine(harness.engine)
    died = False
    try:
        await harness.engine.verify(received.admitted)
    except Killed:
        died = True
    crashes.close()
    again, _ = open_engine(database=tmp_path / "node.sqlite")
    evidence = again.reputation.evidence(ALICE.account, EPOCH)
    decided = again.engine.count.is_decided(received.admitted.content_id)
    assert (evidence.audits == 1) == decided
    assert decided != died
    again.engine.restore(moment(again.manifest))
    while len(again.engine.audits):
        await again.engine.verify(again.engine.audits.take().admitted)
    await again.engine.verify(received.admitted)  # as the sampler does
    assert again.reputation.evidence(ALICE.account, EPOCH) == Evidence(1.0, 0.0, 1, EPOCH, 1)
    assert again.engine.count.points(EPOCH, [ALICE.account], 16) == ((ALICE.account, 1),)


def test_parts_of_an_engine_share_one_database_connection() -> None:
    """All stores that are written together share one connection."""
    engine: Engine = open_engine()[0].engine
    parts = (
        engine.certificates,
        engine.reputation,
        engine.pool,
        engine.envelopes,
        engine.origins,
        engine.proofs,
    )
    assert {part._connection for part in (*parts, engine.count)} == {engine._connection}


@pytest.mark.parametrize(("epochs", "epoch"), [(-2.5, 0), (0.0, 0), (0.9, 0), (1.0, 1), (7.5, 7)])
def test_the_epoch_follows_the_clock_and_is_zero_before_genesis(epochs: float, epoch: int) -> None:
    harness = VerificationHarness((ALICE,))
    manifest = harness.manifest
    assert harness.engine.epoch(manifest.genesis_seconds + epochs * manifest.epoch_seconds) == epoch
