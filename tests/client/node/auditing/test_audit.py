"""Audits: what strangers send costs a bounded share of the checkers' time, and honest work has the rest."""

import random
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
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.observe.events import EventLog, read_events
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed, Failure
from sapo_verification.jail.messages import Checked
from sapo_verification.sampling.audit_queue import MOST_WAITING
from sapo_verification.types import AdmittedRollout

ALICE, BOB, MALLORY = (Identity(number) for number in range(1, 4))
HONEST_SECONDS, DEADLINE_SECONDS = 0.1, 2.0
SPIN = b"an answer that never ends"
MANIFEST = make_manifest(limits=Limits(slots_per_epoch=1 << 16, max_completions=8, points_per_epoch=16))


@dataclass
class Worker:
    """One checker on the mock clock: an honest group takes 100 ms, a spinning one runs into the deadline."""

    desk: VerificationHarness = field(
        default_factory=lambda: VerificationHarness((ALICE, BOB, MALLORY), MANIFEST)
    )
    free: trio.Lock = field(default_factory=trio.Lock)

    def __post_init__(self) -> None:
        self.desk.check = self.check

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Rewards of a group, half of which is right."""
        async with self.free:
            if SPIN in completions:
                await trio.sleep(DEADLINE_SECONDS)
                raise CheckFailed(Failure.TIMEOUT)
            await trio.sleep(HONEST_SECONDS)
        return Checked("a question", (1.0, 0.0))

    def hear(self, author: Identity, slot: int, answer: bytes = b"7") -> AdmittedRollout:
        """A group as it leaves admission."""
        message = author.message(MANIFEST, slot=slot, completions=(answer, b"no"))
        return self.desk.admission.judge(message, MANIFEST.genesis_seconds + 60 * EPOCH)

    def audit(
        self,
        heard: trio.MemoryReceiveChannel[AdmittedRollout],
        shares: AuditShares,
        events: EventLog,
        most_waiting: int = MOST_WAITING,
    ) -> Audit:
        """The node's audit of what is heard."""
        desk, beacons = self.desk, Beacons(MANIFEST, None, events)
        return Audit(
            heard, desk.verifier, desk.pool, desk.reputation, beacons, shares, events, random.Random(0),
            most_waiting,
        )  # fmt: skip

    async def work(self, author: Identity, seconds: float) -> int:
        """How many of an author's groups, one after another, are verified in so long a time."""
        slot, until = 0, trio.current_time() + seconds
        while trio.current_time() < until:
            await self.desk.verifier.verify(self.hear(author, slot))
            slot += 1
        return slot


@pytest.fixture
def events(tmp_path: Path) -> EventLog:
    """An event file."""
    return EventLog(tmp_path / "events.jsonl")


@pytest.fixture
def worker() -> Worker:
    """One checker and the desk around it."""
    return Worker()


async def test_honest_work_keeps_nine_tenths_though_every_stranger_spins(
    worker: Worker, events: EventLog, autojump_clock: MockClock
) -> None:
    calm = await worker.work(ALICE, 400.0)
    send, heard = trio.open_memory_channel[AdmittedRollout](1000)
    for slot in range(1000):
        send.send_nowait(worker.hear(MALLORY, slot, SPIN))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.audit(heard, AuditShares(rollouts=1.0, time=0.05), events).run)
        loaded = await worker.work(BOB, 400.0)
        nursery.cancel_scope.cancel()
    assert loaded >= 0.9 * calm
    assert worker.desk.reputation.evidence(MALLORY.account, EPOCH).audits == 10  # 5 % of 400 s, 2 s each


async def test_a_spinning_account_does_not_keep_an_auditor_from_the_others(
    worker: Worker, events: EventLog, autojump_clock: MockClock
) -> None:
    send, heard = trio.open_memory_channel[AdmittedRollout](200)
    for slot in range(100):
        send.send_nowait(worker.hear(MALLORY, slot, SPIN))
    for slot in range(20):
        send.send_nowait(worker.hear(ALICE, slot))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.audit(heard, AUDITORS_SHARES, events).run)
        await trio.sleep(11.0)
        nursery.cancel_scope.cancel()
    audited: Counter[Account] = Counter(rollout.account for rollout in worker.desk.witness.rollouts)
    assert audited == {ALICE.account: 20}
    assert worker.desk.reputation.evidence(MALLORY.account, EPOCH).audits == 2


async def test_an_audit_takes_what_failed_out_of_the_pool_and_goes_on_after_a_restart(
    worker: Worker, events: EventLog, autojump_clock: MockClock
) -> None:
    send, heard = trio.open_memory_channel[AdmittedRollout](8)
    audit = worker.audit(heard, AuditShares(rollouts=1.0, time=1.0), events)
    good, bad, later = worker.hear(ALICE, 0), worker.hear(MALLORY, 0, SPIN), worker.hear(BOB, 0)
    for admitted in (good, bad, later):
        worker.desk.pool.offer(admitted)
    for batch in ((good, bad), (later,)):
        for admitted in batch:
            send.send_nowait(admitted)
        with trio.move_on_after(5.0):
            await audit.run()
    assert list(worker.desk.pool.waiting()) == [good, later]
    assert [rollout.admitted for rollout in worker.desk.witness.rollouts] == [good, later]


async def test_what_no_room_is_left_for_is_told(
    worker: Worker, events: EventLog, autojump_clock: MockClock, tmp_path: Path
) -> None:
    send, heard = trio.open_memory_channel[AdmittedRollout](8)
    spinning = [worker.hear(MALLORY, slot, SPIN) for slot in range(4)]
    audit = worker.audit(heard, AUDITORS_SHARES, events, most_waiting=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audit.run)
        for admitted in spinning:
            send.send_nowait(admitted)
            await trio.testing.wait_all_tasks_blocked()  # the first is being checked, and two may wait
        nursery.cancel_scope.cancel()
    told = [event for event in read_events(tmp_path / "events.jsonl") if event["event"] == "audit_skipped"]
    assert [event["content_id"] for event in told] == [spinning[3].content_id.hex()]
