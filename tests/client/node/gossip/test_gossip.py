"""Gossip of a node: admitted messages, requested peers, the content of its pool, and hostile answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
from support.crashing import CrashControl, Killed, WriteBudget
from support.gossip_harness import GossipHarness
from support.later import later_kind, later_rollout
from support.nodes import until
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_manifest, moment
from trio.testing import MockClock

from sapo_client.node.gossip.catch_up_server import NEWEST
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_client.swarm.transport import Handler
from sapo_protocol.constants import MAX_ENVELOPE_BYTES
from sapo_protocol.decoding import Value
from sapo_protocol.encoding import encode
from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.requests import to_request
from sapo_protocol.rules import Rule
from sapo_protocol.topics import (
    certificates_protocol,
    contributions_protocol,
    equivocations_protocol,
    newest_protocol,
    rollouts_topic,
)
from sapo_verification.reputation.penalties import verdict
from sapo_verification.sampling.pool import PoolLimits

MANIFEST = make_manifest()
ALICE, BOB, CAROL, MALLORY = (Identity(number) for number in range(1, 5))

Start = Callable[..., GossipHarness]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that creates a node of an identity; a second call reuses its data."""
    hub = MemoryHub()

    def make(identity: Identity, **options: Any) -> GossipHarness:
        root = tmp_path / f"{identity.number}.{identity.key}"
        return GossipHarness(hub, identity, MANIFEST, root, **options)

    return make


@asynccontextmanager
async def running(*node: GossipHarness) -> AsyncIterator[trio.Nursery]:
    """Run nodes, each connected to the one before it; none of their services may fail."""
    async with trio.open_nursery() as nursery:
        for each in node:
            await nursery.start(each.transport.run)
            nursery.start_soon(each.run)
        for left, right in pairwise(node):
            await right.transport.connect(left.address)
        await until(lambda: all(each.knows(each) for each in node))
        yield nursery
        nursery.cancel_scope.cancel()
    for each in node:
        assert each.events("service_failed") == []


async def test_an_unknown_authors_certificate_is_requested_from_the_forwarder(
    start: Start, autojump_clock: MockClock
) -> None:
    """What came before the certificate is kept until it comes, and admitted then."""
    alice, bob, carol = map(start, (ALICE, BOB, CAROL))
    async with running(alice, bob) as nursery:
        await until(lambda: alice.knows(bob) and bob.knows(alice))
        await trio.sleep(5)  # by then they caught up with each other
        await nursery.start(carol.transport.run)
        nursery.start_soon(carol.run)
        await trio.testing.wait_all_tasks_blocked()  # carol's first certificate reaches no peer
        await carol.transport.connect(bob.address)
        await until(lambda: bob.knows(carol))
        assert not alice.knows(carol)

        first = await carol.publish(slot=0)
        await until(lambda: alice.knows(carol))
        [refused] = alice.events("refused")
        assert (refused["reason"], refused["forwarder"]) == ("certificate_unknown", bob.peer_id)
        assert refused["message"] == sha256(carol.message(first)).hexdigest()
        await until(alice.pooled)
        assert alice.pooled() == {first.content_id}
        second = await carol.publish(slot=1)
        await until(lambda: len(alice.pooled()) == 2)
    assert alice.pooled() == {first.content_id, second.content_id}
    assert [admitted["forwarder"] for admitted in alice.events("admitted")] == [bob.peer_id] * 2
    assert len(alice.events("refused")) == 1


async def test_a_late_joiner_catches_up(start: Start, autojump_clock: MockClock) -> None:
    alice, bob, carol = map(start, (ALICE, BOB, CAROL))
    async with running(alice, bob) as nursery:
        await until(lambda: alice.knows(bob) and bob.knows(alice))
        sent = [await alice.publish(slot=0), await bob.publish(slot=0), await alice.publish(slot=1)]
        await until(lambda: len(bob.pooled()) == 2)
        await nursery.start(carol.transport.run)
        nursery.start_soon(carol.run)
        await carol.transport.connect(bob.address)
        await until(lambda: len(carol.pooled()) == 3)
    assert carol.pooled() == {admitted.content_id for admitted in sent}
    assert carol.knows(alice)
    assert [event["event"] for event in carol.events()].count("peer_connected") == 1
    assert carol.events("refused") == []


async def test_expired_rollouts_in_catch_up_are_not_counted_as_refusals(
    start: Start, autojump_clock: MockClock
) -> None:
    now = moment(MANIFEST)
    alice, bob = start(ALICE, clock=lambda: now), start(BOB, clock=lambda: now)
    async with running(alice) as nursery:
        await alice.publish(slot=0)
        now += 2 * EPOCH_SECONDS
        await nursery.start(bob.transport.run)
        nursery.start_soon(bob.run)
        await bob.transport.connect(alice.address)
        await until(lambda: bob.events("peer_connected"))
        await trio.testing.wait_all_tasks_blocked()
    assert (bob.pooled(), bob.events("refused", "admitted")) == (set(), [])


async def test_own_rollouts_never_enter_the_own_pool(start: Start, autojump_clock: MockClock) -> None:
    alice, bob = start(ALICE), start(BOB)
    second = start(Identity(1, key=1))
    async with running(bob, alice) as nursery:
        await nursery.start(second.transport.run)
        nursery.start_soon(second.run)
        await second.transport.connect(alice.address)
        await second.transport.connect(bob.address)
        await until(lambda: all(a.knows(b) for a in (alice, bob, second) for b in (alice, bob, second)))
        own = await alice.publish(slot=0)
        sibling = await second.publish(slot=1)
        await until(lambda: len(bob.pooled()) == 2 and alice.events("admitted"))
        await until(lambda: second.events("admitted"))
    assert bob.pooled() == {own.content_id, sibling.content_id}
    assert (alice.pooled(), second.pooled()) == (set(), set())
    [heard] = alice.events("admitted")  # the sibling's, for its work is paid to the same account
    assert heard["content_id"] == sibling.content_id.hex()


async def test_after_a_restart_own_and_known_rollouts_count_as_seen(
    start: Start, autojump_clock: MockClock
) -> None:
    alice, bob = start(ALICE), start(BOB)
    async with running(alice, bob):
        await until(lambda: alice.knows(bob) and bob.knows(alice))
        await alice.publish(slot=0)
        taken = await bob.publish(slot=0)
        waiting = await bob.publish(slot=1)
        await until(lambda: len(alice.pooled()) == 2)
        alice.pool.take(taken.content_id)  # as the sampler does
    again, others = start(ALICE), start(BOB)
    for each in (again, others):
        each.restore()
    heard = len(again.events("admitted"))
    async with running(again, others):
        await until(lambda: again.events("peer_connected"))
        await trio.testing.wait_all_tasks_blocked()
    assert again.pooled() == {waiting.content_id}
    assert len(again.events("admitted")) == heard
    assert again.events("refused") == []


@pytest.mark.parametrize("writes", range(6))
def test_a_crash_between_two_writes_neither_loses_nor_doubles(start: Start, writes: int) -> None:
    """A process ends before one of its writes; then the same message comes again."""
    node, message = start(BOB), ALICE.message(MANIFEST)
    node.certificates.admit(ALICE.certificate(MANIFEST).to_bytes(), node.now())
    crashes = CrashControl(WriteBudget(writes))
    crashes.wrap_engine(node.engine)
    with suppress(Killed):
        node.gossip.validate_rollout(message, "peer")
    again = start(BOB)
    again.restore()
    again.gossip.validate_rollout(message, "peer")
    [waiting] = again.pool.waiting()
    assert again.message(waiting) == message
    again.pool.take(waiting.content_id)  # as the sampler does
    last = start(BOB)
    last.restore()
    assert last.gossip.validate_rollout(message, "peer") is Verdict.IGNORE
    assert last.pooled() == set()


def test_rollouts_known_before_a_start_with_a_wrong_clock_are_not_admitted_twice(start: Start) -> None:
    message = ALICE.message(MANIFEST)
    node = start(BOB)
    node.certificates.admit(ALICE.certificate(MANIFEST).to_bytes(), node.now())
    node.gossip.validate_rollout(message, "peer")
    node.pool.take(next(node.pool.waiting()).content_id)  # as the sampler does
    now = moment(MANIFEST) - EPOCH_SECONDS
    again = start(BOB, clock=lambda: now)
    again.restore()  # by this clock the rollout is from the future
    now = moment(MANIFEST)
    assert again.gossip.validate_rollout(message, "peer") is Verdict.IGNORE
    assert again.pooled() == set()


def cases() -> dict[str, tuple[Rule, bytes, tuple[bytes, ...]]]:
    """Return the rule, the message and the earlier messages for each reason of the rollouts topic."""
    genuine = ALICE.message(MANIFEST)
    other_swarm = make_manifest(epoch_seconds=EPOCH_SECONDS + 1)
    slots = MANIFEST.limits.slots_per_epoch
    return {
        "oversize": (Rule.MESSAGE_SIZE, bytes(MAX_ENVELOPE_BYTES + 1), ()),
        "noise": (Rule.DEFINITE_LENGTH, b"\xff" * 50, ()),
        "no frame": (Rule.ENVELOPE_KEYS, encode({9: 1}), ()),
        "too many completions": (
            Rule.MANIFEST_COMPLETIONS,
            ALICE.message(MANIFEST, completions=(b"7",) * 9),
            (),
        ),
        "a certificate": (Rule.TOPIC_KIND, ALICE.certificate(MANIFEST).to_bytes(), ()),
        "a later kind": (Rule.KIND_RESERVED, later_kind(), ()),
        "a later key": (Rule.ROLLOUT_RESERVED, later_rollout(), (genuine,)),
        "another swarm": (Rule.SWARM, ALICE.message(other_swarm), ()),
        "past": (Rule.ROLLOUT_IN_TIME, ALICE.message(MANIFEST, epoch=EPOCH - 2), ()),
        "future": (Rule.EPOCH_BEGUN, ALICE.message(MANIFEST, epoch=EPOCH + 1), ()),
        "seen": (Rule.ROLLOUT_NEW, genuine, (genuine,)),
        "unknown": (Rule.AUTHOR_INTRODUCED, MALLORY.message(MANIFEST), ()),
        "quota": (Rule.SLOT_QUOTA, ALICE.message(MANIFEST, slot=slots), ()),
        "family": (Rule.KNOWN_FAMILY, ALICE.message(MANIFEST, family=99), ()),
        "impersonated": (Rule.NODE_SIGNED, MALLORY.seal(MANIFEST, ALICE.rollout()).to_bytes(), ()),
        "equivocation": (
            Rule.ONE_CONTENT,
            ALICE.message(MANIFEST, completions=(b"1", b"2")),
            (genuine,),
        ),
    }


@pytest.mark.parametrize("name", cases())
def test_the_verdict_on_a_rollout_follows_the_table_of_consequences(start: Start, name: str) -> None:
    rule, message, before = cases()[name]
    node = start(BOB)
    node.certificates.admit(ALICE.certificate(MANIFEST).to_bytes(), node.now())
    for earlier in before:
        assert node.gossip.validate_rollout(earlier, "friend") is Verdict.ACCEPT
    assert node.gossip.validate_rollout(message, "forwarder") is verdict(rule.reason)
    [event] = node.events("refused")
    told = {key: event[key] for key in ("reason", "rule", "stage", "message", "forwarder")}
    assert told == {
        "reason": str(rule.reason),
        "rule": rule.number,
        "stage": rule.stage,
        "message": sha256(message).hexdigest(),
        "forwarder": "forwarder",
    }
    assert node.telemetry.refusals == {rule.reason: 1}


def test_the_verdict_on_a_certificate_follows_the_table_of_consequences(start: Start) -> None:
    node = start(BOB)
    genuine = ALICE.certificate(MANIFEST).to_bytes()
    expired = CAROL.certificate(MANIFEST, not_after=int(node.now()) - 1).to_bytes()
    damaged = genuine[:-1] + bytes([genuine[-1] ^ 1])
    judge = node.gossip.validate_certificate
    assert judge(genuine, "peer") is Verdict.ACCEPT
    assert judge(genuine, "peer") is Verdict.IGNORE  # repeated certificates are not counted as refusals
    assert judge(expired, "peer") is verdict(Reason.CERTIFICATE_EXPIRED) is Verdict.IGNORE
    assert judge(ALICE.message(MANIFEST), "peer") is verdict(Reason.WRONG_KIND) is Verdict.REJECT
    assert judge(damaged, "peer") is Verdict.REJECT
    reasons = [event["reason"] for event in node.events("refused")]
    assert reasons[:2] == ["certificate_expired", "wrong_kind"]
    assert len(reasons) == 3


@pytest.mark.parametrize(
    ("limits", "ban", "rule"),
    [
        (PoolLimits(per_account=0), False, Rule.ACCOUNT_QUOTA),
        (PoolLimits(rollouts=0), False, Rule.NEWCOMER_CAP),
        (PoolLimits(), True, Rule.NOT_BANNED),
    ],
)
def test_rollouts_that_the_pool_refuses_are_forwarded(
    start: Start, limits: PoolLimits, ban: bool, rule: Rule
) -> None:
    node = start(BOB, limits=limits)
    node.certificates.admit(ALICE.certificate(MANIFEST).to_bytes(), node.now())
    if ban:
        node.reputation.record_fault(ALICE.account, 0, EPOCH, Reason.EQUIVOCATION)
    assert (
        node.gossip.validate_rollout(ALICE.message(MANIFEST), "peer")
        is verdict(rule.reason)
        is Verdict.ACCEPT
    )
    [event] = node.events("refused")
    told = (event["rule"], event["reason"], event["account"])
    assert told == (rule.number, str(rule.reason), ALICE.account.hex())
    assert node.pooled() == set()
    assert len(node.engine.audits) == 0


# Hostile peers


async def _silent(peer_id: str, request: bytes) -> bytes:
    await trio.sleep_forever()


def answering(content: Value | bytes) -> Handler:
    async def answer(peer_id: str, request: bytes) -> bytes:
        return content if isinstance(content, bytes) else encode(content)

    return answer


HOSTILE = {
    "no CBOR": answering(b"\xff\xff"),
    "nothing": answering(b""),
    "no list": answering({0: 1}),
    "no byte strings": answering((1, "text", (b"nested",))),
    "too long a message": answering((bytes(MAX_ENVELOPE_BYTES + 1),)),
    "too long an answer": answering(bytes(MAX_ANSWER_BYTES + 1)),
    "a bomb of arrays": answering(b"\x9b" + b"\xff" * 8),
    "deep nesting": answering(b"\x81" * 10_000),
    "noise for messages": answering(tuple(bytes([n % 256]) * 9 for n in range(4000))),
    "messages of another swarm": answering(
        (ALICE.certificate(make_manifest(epoch_seconds=EPOCH_SECONDS + 1)).to_bytes(),) * 9
    ),
    "silence": _silent,
}


@pytest.mark.parametrize("protocol_of", [certificates_protocol, equivocations_protocol])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_response_is_recorded_and_changes_nothing(
    start: Start, name: str, protocol_of: Callable[..., str], autojump_clock: MockClock
) -> None:
    alice, bob = start(ALICE), start(BOB)
    mallory = MemoryTransport(alice.hub, "mallory", on_bug=_raise)
    for protocol in (certificates_protocol, equivocations_protocol):
        mallory.serve(protocol(MANIFEST.swarm_id), answering(()))
    mallory.serve(protocol_of(MANIFEST.swarm_id), HOSTILE[name])
    async with running(alice) as nursery:
        await nursery.start(mallory.run)
        await mallory.connect(alice.address)
        await until(lambda: alice.events("introduction_failed"))
        await nursery.start(bob.transport.run)  # an honest node connects, and is asked
        nursery.start_soon(bob.run)
        await bob.transport.connect(alice.address)
        await until(lambda: alice.knows(bob))
        sent = await bob.publish()
        await until(alice.pooled)
        await trio.sleep(600)
    assert alice.pooled() == {sent.content_id}
    failures = alice.events("introduction_failed")
    assert {event["peer_id"] for event in failures} == {"mallory"}
    assert 15 <= len(failures) <= 26  # ten minutes, in the end twice a minute
    assert len(alice.events("refused")) <= len(failures)  # the first bad message ends an answer


async def test_certificates_that_were_not_asked_for_are_dropped(
    start: Start, autojump_clock: MockClock
) -> None:
    alice = start(ALICE)
    mallory = MemoryTransport(alice.hub, "mallory", on_bug=_raise)
    answers: list[bytes] = []
    asked: list[bytes] = []

    async def certificates(_peer_id: str, request: bytes) -> bytes:
        asked.append(request)
        return encode(tuple(answers))

    mallory.serve(certificates_protocol(MANIFEST.swarm_id), certificates)
    mallory.serve(equivocations_protocol(MANIFEST.swarm_id), answering(()))
    async with running(alice) as nursery:
        await nursery.start(mallory.run)
        await mallory.connect(alice.address)
        await until(lambda: alice.events("peer_connected"))
        answers += [each.certificate(MANIFEST).to_bytes() for each in (CAROL, BOB, MALLORY)]
        await mallory.publish(rollouts_topic(MANIFEST.swarm_id), BOB.message(MANIFEST))
        await until(lambda: alice.knows(BOB))
    assert asked == [b"", to_request([BOB.node])]
    assert [alice.knows(each) for each in (BOB, CAROL, MALLORY)] == [True, False, False]
    assert alice.events("introduction_failed") == []


async def test_a_silent_peer_delays_no_request_to_others(start: Start, autojump_clock: MockClock) -> None:
    alice, bob, carol = map(start, (ALICE, BOB, CAROL))
    mallory = MemoryTransport(alice.hub, "mallory", on_bug=_raise)
    asked = trio.Event()

    async def silent(_peer_id: str, _request: bytes) -> bytes:
        asked.set()
        await trio.sleep_forever()

    mallory.serve(certificates_protocol(MANIFEST.swarm_id), silent)
    async with running(alice, bob) as nursery:
        await nursery.start(carol.transport.run)
        nursery.start_soon(carol.run)
        await trio.testing.wait_all_tasks_blocked()  # carol's first certificate reaches no peer
        await carol.transport.connect(bob.address)
        await until(lambda: bob.knows(carol))
        await nursery.start(mallory.run)
        await mallory.connect(alice.address)
        await asked.wait()
        started = trio.current_time()
        await carol.publish()
        await until(lambda: alice.knows(carol))
        assert trio.current_time() - started < 5


def _raise(error: Exception) -> None:
    raise error


async def test_a_peer_that_serves_requests_late_is_introduced_within_seconds(
    start: Start, autojump_clock: MockClock
) -> None:
    alice = start(ALICE)
    late = MemoryTransport(alice.hub, "late", on_bug=_raise)
    async with running(alice) as nursery:
        await nursery.start(late.run)
        await late.connect(alice.address)
        await until(lambda: len(alice.events("introduction_failed")) == 2)
        for protocol in (certificates_protocol, equivocations_protocol):
            late.serve(protocol(MANIFEST.swarm_id), answering(()))
        await until(lambda: alice.events("peer_connected"), seconds=10)
        asked_by: list[str] = []

        async def answer(peer_id: str, request: bytes) -> bytes:
            asked_by.append(peer_id)
            return encode(())

        late.serve(contributions_protocol(MANIFEST.swarm_id), answer)
        alice.gossip.open_contributions(lambda: ())
        await until(lambda: asked_by)
    assert asked_by == [alice.peer_id]
    assert len(alice.events("peer_connected")) == 1


async def test_the_gossip_service_can_be_restarted(start: Start, autojump_clock: MockClock) -> None:
    alice, bob = start(ALICE), start(BOB)
    async with trio.open_nursery() as nursery:
        for each in (alice, bob):
            await nursery.start(each.transport.run)
        with trio.move_on_after(5):
            await alice.gossip.run()
        nursery.start_soon(alice.run)
        nursery.start_soon(bob.run)
        await bob.transport.connect(alice.address)
        await until(lambda: alice.knows(bob))
        await bob.publish()
        await until(alice.pooled)
        nursery.cancel_scope.cancel()
    assert alice.events("service_failed", "refused") == []


async def test_a_response_contains_the_newest_messages_that_fit(
    start: Start, autojump_clock: MockClock
) -> None:
    alice, bob = start(ALICE), start(BOB)
    long = (b"x" * 8000,) * 8
    async with running(alice, bob):
        await until(lambda: alice.knows(bob) and bob.knows(alice))
        for slot in range(MANIFEST.limits.slots_per_epoch):
            await bob.publish(slot=slot, completions=long)
        answer = await alice.transport.request(
            bob.peer_id, newest_protocol(MANIFEST.swarm_id), b"", max_response_bytes=MAX_ANSWER_BYTES
        )
    assert MAX_ANSWER_BYTES - 128 * 1024 < len(answer) <= MAX_ANSWER_BYTES
    assert MANIFEST.limits.slots_per_epoch < NEWEST


async def test_a_repeated_message_is_validated_once(start: Start, autojump_clock: MockClock) -> None:
    alice, bob = start(ALICE), start(BOB)
    async with running(alice, bob):
        await until(lambda: alice.knows(bob) and bob.knows(alice))
        noise = b"\xff" * 9
        await bob.transport.publish(rollouts_topic(MANIFEST.swarm_id), noise)
        await until(lambda: alice.events("refused"))
        await bob.transport.publish(rollouts_topic(MANIFEST.swarm_id), noise)
        await trio.testing.wait_all_tasks_blocked()
    assert len(alice.events("refused")) == 1
    assert alice.transport.score(bob.peer_id) < 0
