"""A swarm whose audits are by sample, on a real chain: auditors hear no rollout and pay what is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pytest
import trio
from support.auditor_harness import AUDITORS, AuditorHarness, Funded, World, checking, connect
from support.ledger import DEPLOYER, address
from support.nodes import until

from sapo_protocol import merkle
from sapo_protocol.audits.commitment import Commitment, commit
from sapo_protocol.audits.draw import draw, draw_seconds, drawn_slots
from sapo_protocol.audits.groups import OpenedGroup, parse_group_request
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.topics import commitments_topic, groups_protocol, rollouts_topic
from sapo_verification.types import AdmittedRollout

EPOCH = 101
GRACE = 6
TERMS = AuditTerms(samples=4, one_in=1)
SLOTS = 6

HONEST, BOASTER, WITHHOLDER, TWICE, LATE, GONE = (Funded(number) for number in (2, 3, 4, 5, 1, 14))
WORKERS = (HONEST, BOASTER, WITHHOLDER, TWICE, LATE, GONE)


@dataclass
class SampledWorld(World):
    """A swarm whose manifest asks for audits by sample."""

    @cached_property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.contracts.manifest(version=2, audits=TERMS)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    created = SampledWorld.create(tmp_path, workers=WORKERS)
    yield created
    created.chain.close()


def _message(harness: AuditorHarness, commitment: Commitment) -> bytes:
    """Return a commitment as a message of a node, whatever it says."""
    payload = commitment.to_payload()
    return seal(Kind.COMMITMENT, harness.manifest.swarm_id, payload, harness.identity.seed).to_bytes()


def _committed(harness: AuditorHarness, account: Account) -> Commitment | None:
    return harness.node.engine.sampled.commitments.of(account, EPOCH)


def _of(harness: AuditorHarness, groups: dict[int, ContentId]) -> Commitment:
    return commit(harness.identity.node, harness.identity.account, EPOCH, groups.items())


async def _work(harness: AuditorHarness) -> list[AdmittedRollout]:
    """Make six groups that are paid and one that is not."""
    made = [await harness.work(EPOCH, slot) for slot in range(SLOTS)]
    await harness.work(EPOCH, SLOTS, right=2, wrong=0)
    return made


def _part_from(harness: AuditorHarness, everybody: list[AuditorHarness]) -> None:
    """Cut a node off from all others until the hub heals."""
    others = [one.node.peer_id for one in everybody if one is not harness]
    harness.world.hub.partition([harness.node.peer_id], others)


def _hold(workers: list[AuditorHarness], *authors: Funded) -> bool:
    """Whether the workers hold the groups of some accounts."""
    hearing = [worker for worker in workers if worker.identity is not WITHHOLDER]
    held = (one.node.envelopes.of(author.account, EPOCH) for one in hearing for author in authors)
    return all(len(envelopes) == SLOTS + 1 for envelopes in held)


def _boast(boaster: AuditorHarness, made: list[AdmittedRollout]) -> Commitment:
    """Commit to as many invented groups as there are true ones, and show the true ones to whoever asks."""
    groups = {one.rollout.slot: one.content_id for one in made}
    groups |= {SLOTS + slot: ContentId(bytes([slot]) * 32) for slot in range(SLOTS)}
    commitment, tree = _of(boaster, groups), ContentTree(list(groups.values()))

    async def show(_peer_id: str, request: bytes) -> bytes:
        asked = parse_group_request(request)
        assert asked is not None
        true = [slot for slot in asked.slots if asked.account == BOASTER.account and slot < SLOTS]
        return encode(tuple(OpenedGroup(made[slot].envelope, tree.path(slot)).to_bytes() for slot in true))

    boaster.node.engine.sampled.commitments.admit(_message(boaster, commitment), boaster.world.now())
    boaster.node.transport.serve(groups_protocol(boaster.manifest.swarm_id), show)
    return commitment


async def _hide(_peer_id: str, _request: bytes) -> bytes:
    return encode(())


async def _live(life: trio.CancelScope, harness: AuditorHarness, *, sends: bool) -> None:
    with life:
        await harness.run(sends=sends)


async def _post(world: World, witness: AuditorHarness) -> None:
    for turn, patience_seconds in ((0, 4), (1, 4), (2, 4), (3, 30), (4, 60)):  # a busy machine takes long
        world.turn_to(EPOCH + 1, (5 + turn) * GRACE + 1)
        with trio.move_on_after(patience_seconds):
            while await witness.ledger.last_record() is None:
                await trio.sleep(0.2)
            return
    raise AssertionError(f"epoch {EPOCH} was not posted")


async def test_auditors_that_hear_commitments_alone_pay_what_is_true(world: World) -> None:
    swarm = world.manifest.swarm_id
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in AUDITORS]
        workers = [AuditorHarness(world, identity, checkers, audits=False) for identity in WORKERS]
        honest, boaster, withholder, twice, late, gone = workers
        lives = {harness.identity: trio.CancelScope() for harness in (*auditors, *workers)}
        for harness in (*auditors, *workers):
            nursery.start_soon(partial(_live, lives[harness.identity], harness, sends=harness in auditors))
        world.turn_to(EPOCH, 30)
        await connect(*auditors, *workers)
        for auditor in auditors:
            auditor.node.transport.unsubscribe(rollouts_topic(swarm))

        made = {worker.identity: await _work(worker) for worker in (honest, boaster, twice, late, gone)}
        _part_from(withholder, [*auditors, *workers])
        await _work(withholder)  # nobody else ever hears these
        world.hub.heal()
        await until(lambda: _hold(workers, HONEST, GONE))
        world.turn_to(EPOCH + 1, 1)
        commitment = _boast(boaster, made[BOASTER])
        assert not any(auditor.node.envelopes.of(w.account, EPOCH) for auditor in auditors for w in WORKERS)

        _part_from(late, [*auditors, *workers])
        world.turn_to(EPOCH + 1, GRACE - 2)
        known = (HONEST, BOASTER, WITHHOLDER, TWICE, GONE)
        await until(lambda: all(_committed(a, one.account) for a in auditors for one in known))
        assert {_committed(a, BOASTER.account) for a in auditors} == {commitment}
        await until(lambda: late.node.engine.sampled.commitments.has(LATE.account, EPOCH))
        other = _message(twice, _of(twice, {0: made[TWICE][0].content_id}))
        await twice.node.transport.publish(commitments_topic(swarm), other)
        await until(lambda: not any(_committed(a, TWICE.account) for a in auditors))
        lives[GONE].cancel()
        withholder.node.transport.serve(groups_protocol(swarm), _hide)

        world.turn_to(EPOCH + 1, GRACE + 1)
        world.hub.heal()
        message = late.node.engine.sampled.commitments.message(LATE.account, EPOCH)
        assert message is not None
        received = auditors[0].node.engine.receive(commitments_topic(swarm), message, world.now())
        assert (received.verdict, received.rule) == (Verdict.IGNORE, Rule.COMMITMENT_IN_TIME)

        world.turn_to(EPOCH + 1, 2 * GRACE + 1)
        world.chain.send(DEPLOYER, address(DEPLOYER), b"")  # a block
        await until(lambda: all(a.auditor.sample.is_drawn(EPOCH) for a in auditors))
        hash_ = await honest.ledger.block_hash_from(int(draw_seconds(world.manifest, EPOCH)))
        drawn = drawn_slots(draw(swarm, EPOCH, hash_), BOASTER.account, commitment.slots, TERMS)
        failed = sum(slot >= SLOTS for slot in drawn)
        shown = 2 * TERMS.samples + TERMS.samples - failed
        await until(lambda: all(len(a.auditor.sample.judged(EPOCH)) == shown for a in auditors))
        boasted = 2 * SLOTS * max(0, 4 - 2 * failed) // 4
        expected = {HONEST.account: SLOTS, GONE.account: SLOTS}
        expected |= {BOASTER.account: boasted} if boasted else {}

        world.turn_to(EPOCH + 1, 4.5 * GRACE + 0.5)
        await until(lambda: all(len(a.contributions.tallies(EPOCH)) == 3 for a in auditors))
        counts = {tuple(tally.points) for tally in auditors[0].contributions.tallies(EPOCH).values()}
        assert counts == {tuple(sorted(expected.items()))}
        await _post(world, honest)
        record = await honest.ledger.last_record()
        assert record is not None
        root = merkle.sum_root(sorted(expected.items()))
        assert (record.root.epoch, record.root.contribution_root) == (EPOCH, root)
        for harness in (*auditors, *workers):
            assert harness.node.events("service_failed") == []
        nursery.cancel_scope.cancel()
