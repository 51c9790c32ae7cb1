"""Audits: rollouts of strangers cost a bounded share of the checkers' time; honest work keeps the rest."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from support.swarm import EPOCH, Identity, make_manifest
from support.verification_harness import VerificationHarness
from trio.testing import MockClock

from sapo_client.node.auditing.audit import AUDITORS_SHARES, Audit, AuditShares
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.observe.events import EventLog, read_events
from sapo_client.observe.metrics import NodeMetrics
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_protocol.topics import rollouts_topic
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.jail.messages import Checked
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT
from sapo_verification.sampling.audit_queue import MAX_WAITING
from sapo_verification.types import AdmittedRollout

ALICE, BOB, MALLORY = (Identity(number) for number in range(1, 4))
HONEST_SECONDS, DEADLINE_SECONDS = 0.1, 2.0
SPIN = b"an answer that never ends"
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=1 << 16, max_completions=8, points_per_epoch=16))
NOW = MANIFEST.genesis_seconds + 60 * EPOCH


@dataclass
class Worker:
    """One checker on the mock clock: an honest group takes 100 ms, an endless one runs into the deadline."""

    audits_waiting: int = MAX_WAITING
    free: trio.Lock = field(default_factory=trio.Lock)

    def __post_init__(self) -> None:
        self.harness = VerificationHarness(
            (ALICE, BOB, MALLORY), MANIFEST, check=self.check, audits_waiting=self.audits_waiting
        )
        self.harness.trust(ALICE, BOB, MALLORY)
        self.engine = self.harness.engine

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return the rewards of a group of which half is right."""
        async with self.free:
            if SPIN in completions:
                await trio.sleep(DEADLINE_SECONDS)
                raise CheckFailed(Failure.TIMEOUT)
            await trio.sleep(HONEST_SECONDS)
        return Checked("a question", (1.0, 0.0))

    def message(self, author: Identity, slot: int, answer: bytes = b"7") -> bytes:
        """Return a sealed group."""
        return author.message(MANIFEST, slot=slot, completions=(answer, b"no"))

    def receive(self, author: Identity, slot: int, answer: bytes = b"7") -> AdmittedRollout:
        """Return a group that came by gossip."""
        topic = rollouts_topic(MANIFEST.swarm_id)
        received = self.engine.receive(topic, self.message(author, slot, answer), NOW)
        assert isinstance(received.admitted, AdmittedRollout)
        return received.admitted

    def audit(self, shares: AuditShares, events: EventLog) -> Audit:
        """Return the node's audit."""
        beacons = Beacons(MANIFEST, NoChain().block_hash_before, events)
        return Audit(engine=self.engine, beacons=beacons, time_share=shares.time)

    async def work(self, author: Identity, seconds: float) -> int:
        """Return how many of an author's groups, one after another, are verified in so long a time."""
        slot, until = 0, trio.current_time() + seconds
        while trio.current_time() < until:
            await self.engine.verify(self.engine.admit_own(self.message(author, slot), NOW))
            slot += 1
        return slot


@pytest.fixture
def events(tmp_path: Path) -> EventLog:
    """Return an event file."""
    return EventLog(tmp_path / "events.jsonl")


@pytest.fixture
def worker() -> Worker:
    """Return one checker and the engine around it."""
    return Worker()


def audits_of(worker: Worker, author: Identity) -> int:
    """Return how many groups of an author were audited beyond those that made it known."""
    return worker.harness.reputation.evidence(author.account, EPOCH).audits - 2 * AUDITS_BEFORE_WEIGHT


async def test_own_checks_keep_nine_tenths_of_their_rate_under_spinning_answers(
    worker: Worker, events: EventLog, autojump_clock: MockClock
) -> None:
    calm = await worker.work(ALICE, 400.0)
    for slot in range(1000):
        worker.receive(MALLORY, slot, SPIN)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.audit(AuditShares(rollouts=1.0, time=0.05), events).run)
        loaded = await worker.work(BOB, 400.0)
        nursery.cancel_scope.cancel()
    assert loaded >= 0.9 * calm
    assert audits_of(worker, MALLORY) == 10  # 5 % of 400 s, 2 s each


async def test_a_spinning_account_does_not_keep_an_auditor_from_the_others(
    worker: Worker, events: EventLog, autojump_clock: MockClock
) -> None:
    for slot in range(100):
        worker.receive(MALLORY, slot, SPIN)
    for slot in range(20):
        worker.receive(ALICE, slot)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.audit(AUDITORS_SHARES, events).run)
        await trio.sleep(11.0)
        nursery.cancel_scope.cancel()
    audited: Counter[Account] = Counter(rollout.account for rollout in worker.harness.record.rollouts)
    assert audited == {ALICE.account: 20}
    assert audits_of(worker, MALLORY) == 2


async def test_an_audit_removes_failed_groups_from_the_pool_and_continues_after_a_restart(
    worker: Worker, events: EventLog, autojump_clock: MockClock
) -> None:
    audit = worker.audit(AuditShares(rollouts=1.0, time=1.0), events)
    received = []
    for batch in ([(ALICE, b"7"), (MALLORY, SPIN)], [(BOB, b"7")]):
        received += [worker.receive(author, 0, answer) for author, answer in batch]
        with trio.move_on_after(5.0):
            await audit.run()
    good, _, later = received
    assert list(worker.harness.pool.waiting()) == [good, later]
    assert [rollout.admitted for rollout in worker.harness.record.rollouts] == [good, later]


async def test_rollouts_evicted_from_the_audit_queue_are_reported(
    events: EventLog, autojump_clock: MockClock, tmp_path: Path
) -> None:
    worker = Worker(audits_waiting=2)
    metrics = NodeMetrics(version="0", swarm_id=str(MANIFEST.swarm_id), node_id="0")
    worker.engine.observe(Telemetry(events, metrics, MANIFEST.suite, BOB.account))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.audit(AUDITORS_SHARES, events).run)
        await trio.testing.wait_all_tasks_blocked()
        spinning = []
        for slot in range(4):
            spinning.append(worker.receive(MALLORY, slot, SPIN))
            await trio.testing.wait_all_tasks_blocked()  # the first is being checked, and two may wait
        nursery.cancel_scope.cancel()
    skipped = [each for each in read_events(tmp_path / "events.jsonl") if each["event"] == "audit_skipped"]
    assert [event["content_id"] for event in skipped] == [spinning[3].content_id.hex()]
