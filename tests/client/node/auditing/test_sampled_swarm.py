"""A swarm of islands with audits by sample on a real chain: auditors pay other islands correctly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations, product
from pathlib import Path

import pytest
import trio
from support.auditor_harness import (
    FOUR_AUDITORS,
    AuditorHarness,
    Funded,
    World,
    checking,
)
from support.contributions import sealed_by, tally_of
from support.ledger import CHALLENGE_SECONDS, DEPLOYER, address
from support.nodes import until

from sapo_client.ledger.records import EpochRecord
from sapo_client.node.auditing.sample import SampleAudit
from sapo_protocol import merkle
from sapo_protocol.audits.commitment import Commitment, commit
from sapo_protocol.audits.draw import draw, draw_seconds, drawn_slots
from sapo_protocol.audits.groups import OpenedGroup, parse_group_request
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.topics import (
    commitments_topic,
    contributions_topic,
    groups_protocol,
    rollout_ids_protocol,
)
from sapo_verification.types import AdmittedRollout

EPOCH = 124
"""The chain has blocks from the beginning of epoch 100 on, and homes rest on beacons of up to 22 epochs."""

GRACE = 6
TERMS = AuditTerms(samples=4, one_in=1)
ISLANDS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=8, most_islands=8, count=8)
SLOTS = 6
PATIENCE_SECONDS = 180.0

WORKERS = tuple(map(Funded, range(1, 6)))
LIAR, *HONEST_AUDITORS = FOUR_AUDITORS


@dataclass
class SampledWorld(World):
    """A swarm of eight islands whose manifest asks for audits by sample."""

    @cached_property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.contracts.manifest(version=2, audits=TERMS, islands=ISLANDS)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with SampledWorld.running(tmp_path, auditors=FOUR_AUDITORS, quorum=3, workers=WORKERS) as created:
        yield created


@dataclass
class Swarm:
    """Three honest auditors and five workers, whose parts follow from where they live."""

    auditors: list[AuditorHarness]
    workers: list[AuditorHarness]

    @property
    def all(self) -> list[AuditorHarness]:
        """Everybody."""
        return [*self.auditors, *self.workers]

    def home(self, worker: AuditorHarness) -> int | None:
        """Where a worker lives in the epoch."""
        return worker.node.engine.islands.home(worker.identity.account, EPOCH)

    def is_heard(self, worker: AuditorHarness, listener: AuditorHarness) -> bool:
        """Whether a node is subscribed to a worker's island."""
        return self.home(worker) in listener.node.engine.islands.rollouts

    def far(self) -> set[tuple[AuditorHarness, AuditorHarness]]:
        """Return each worker with each auditor that is not subscribed to its island now: visits change."""
        return {pair for pair in product(self.workers, self.auditors) if not self.is_heard(*pair)}

    def parts(self) -> list[AuditorHarness]:
        """Return the workers: first one and another that hears it, as far from auditors as there are any."""
        pairs = [pair for pair in permutations(self.workers, 2) if self.is_heard(*pair)]
        gone, keeper = min(pairs, key=lambda pair: sum(self.is_heard(pair[0], one) for one in self.auditors))
        return [gone, keeper, *(one for one in self.workers if one not in (gone, keeper))]

    def is_ready(self) -> bool:
        """Whether all nodes are on their islands, auditors on all, and certificates where they count."""
        if None in map(self.home, self.all):
            return False
        joined = all(one.node.engine.islands.has_joined for one in self.all)
        everywhere = all(len(one.node.engine.islands.carried) == ISLANDS.count for one in self.auditors)
        return (
            joined
            and everywhere
            and all(
                one.node.knows(other.node)
                for one in self.all
                for other in self.all
                if other in self.auditors or self.home(other) in one.node.engine.islands.carried
            )
        )


async def _meet(swarm: Swarm) -> None:
    """Connect all, and wait until they are ready."""
    everybody = swarm.all
    await until(lambda: all(one.node.hub.node(one.node.peer_id) for one in everybody), PATIENCE_SECONDS)
    for index, one in enumerate(everybody):
        for other in everybody[:index]:
            await one.node.transport.connect(other.node.address)
    await until(swarm.is_ready, PATIENCE_SECONDS)


def _message(harness: AuditorHarness, commitment: Commitment) -> bytes:
    """Return any commitment as a message of a node."""
    payload = commitment.to_payload()
    return seal(Kind.COMMITMENT, harness.manifest.swarm_id, payload, harness.identity.seed).to_bytes()


def _committed(harness: AuditorHarness, worker: AuditorHarness) -> Commitment | None:
    return harness.node.engine.sampled.commitments.of(worker.identity.account, EPOCH)


def _of(harness: AuditorHarness, groups: dict[int, ContentId]) -> Commitment:
    return commit(harness.identity.node, harness.identity.account, EPOCH, groups.items())


async def _work(harness: AuditorHarness) -> list[AdmittedRollout]:
    """Make six groups that are paid and one that is not."""
    made = [await harness.work(EPOCH, slot) for slot in range(SLOTS)]
    await harness.work(EPOCH, SLOTS, right=2, wrong=0)
    return made


def _holds(holder: AuditorHarness, author: AuditorHarness) -> bool:
    return len(holder.node.envelopes.of(author.identity.account, EPOCH)) == SLOTS + 1


def _boast(boaster: AuditorHarness, made: list[AdmittedRollout]) -> Commitment:
    """Commit to as many invented groups as there are true ones, and provide the true ones on request."""
    groups = {one.rollout.slot: one.content_id for one in made}
    groups |= {SLOTS + slot: ContentId(bytes([slot]) * 32) for slot in range(SLOTS)}
    commitment, tree = _of(boaster, groups), ContentTree(list(groups.values()))

    async def show(_peer_id: str, request: bytes) -> bytes:
        asked = parse_group_request(request)
        assert asked is not None
        true = [slot for slot in asked.slots if asked.account == boaster.identity.account and slot < SLOTS]
        return encode(
            tuple(OpenedGroup(boaster.node.message(made[slot]), tree.path(slot)).to_bytes() for slot in true)
        )

    boaster.node.engine.sampled.commitments.admit(_message(boaster, commitment), boaster.world.now())
    boaster.node.transport.serve(groups_protocol(boaster.manifest.swarm_id), show)
    return commitment


async def _hide(_peer_id: str, _request: bytes) -> bytes:
    return encode(())


async def _withhold(author: AuditorHarness, friend: AuditorHarness) -> None:
    """Make groups that only an accomplice receives, commit to them, and provide them to no node."""
    for one in (author, friend):  # neither hands them on to who catches up
        one.node.transport.serve(rollout_ids_protocol(author.manifest.swarm_id), _hide)
    made = {}
    for slot in range(SLOTS):
        admitted = await author.make(EPOCH, slot)
        friend.node.envelopes.add(admitted, author.node.message(admitted))
        made[slot] = admitted.content_id
    commitment = _message(author, _of(author, made))
    author.world.turn_to(EPOCH + 1, 1)
    author.node.engine.sampled.commitments.admit(commitment, author.world.now())
    author.node.transport.serve(groups_protocol(author.manifest.swarm_id), _hide)


async def _commit_twice(author: AuditorHarness, made: list[AdmittedRollout], home: int) -> None:
    topic = commitments_topic(author.manifest.swarm_id, home)
    await author.node.transport.publish(topic, _message(author, _of(author, {0: made[0].content_id})))


def _shown(harness: AuditorHarness) -> int:
    """Return how many drawn groups an auditor has got and checked."""
    assert isinstance(harness.auditor.audited, SampleAudit)
    return len(harness.auditor.audited.judged(EPOCH))


async def _lie(world: World, swarm: Swarm, friend: AuditorHarness) -> None:
    """Send the tally of an auditor who grants his friend the cap, and all others nothing."""
    for one in swarm.all:
        certificate = LIAR.certificate(world.manifest, int(world.now()) - 60, int(world.now()) + 600)
        one.node.certificates.admit(certificate.to_bytes(), world.now())
    tally = sealed_by(LIAR, world.manifest, tally_of(LIAR, EPOCH, {friend.identity.account: 16}))
    await friend.node.transport.publish(contributions_topic(world.manifest.swarm_id), tally)


async def _live(life: trio.CancelScope, harness: AuditorHarness, *, sends: bool) -> None:
    with life:
        await harness.run(sends=sends)


async def _finish(world: World, witness: AuditorHarness) -> EpochRecord:
    """Turn the clock until the epoch is posted, and on until it is final; return what the chain holds."""
    patience = ((0, 10), (1, 30), (2, 30), (3, 60), (4, 120))  # the first turn is the dishonest auditor's
    for turn, patience_seconds in patience:
        world.turn_to(EPOCH + 1, (5 + turn) * GRACE + 1)
        with trio.move_on_after(patience_seconds):
            while not (await witness.ledger.live_record() or await witness.ledger.last_record()):
                await trio.sleep(0.2)
            break
    else:
        raise AssertionError(f"epoch {EPOCH} was not posted")
    world.chain.now_seconds += CHALLENGE_SECONDS
    with trio.fail_after(PATIENCE_SECONDS):
        while (record := await witness.ledger.last_record()) is None:
            world.chain.now_seconds += 0.2  # the node whose turn it is makes it final
            await trio.sleep(0.2)
    return record


def _committed_in_time(swarm: Swarm) -> bool:
    return all(_committed(auditor, worker) for auditor in swarm.auditors for worker in swarm.workers)


@pytest.mark.long
async def test_auditors_pay_sampled_claims_of_islands_they_do_not_receive(world: World) -> None:
    swarm_id = world.manifest.swarm_id
    async with checking(world) as (nursery, checkers):
        auditors = [AuditorHarness(world, identity, checkers) for identity in HONEST_AUDITORS]
        workers = [AuditorHarness(world, identity, checkers, audits=False) for identity in WORKERS]
        swarm = Swarm(auditors, workers)
        lives = {harness.identity: trio.CancelScope() for harness in swarm.all}
        for harness in swarm.all:
            nursery.start_soon(partial(_live, lives[harness.identity], harness, sends=harness in auditors))
        world.turn_to(EPOCH, 30)
        await _meet(swarm)
        gone, keeper, boaster, withholder, twice = swarm.parts()
        far = swarm.far()

        made = {worker.identity: await _work(worker) for worker in (gone, keeper, boaster, twice)}
        await until(lambda: _holds(keeper, gone), PATIENCE_SECONDS)
        await _withhold(withholder, friend=boaster)
        commitment = _boast(boaster, made[boaster.identity])
        world.turn_to(EPOCH + 1, GRACE - 2)
        await until(lambda: _committed_in_time(swarm), PATIENCE_SECONDS)
        await until(lambda: _committed(keeper, gone), PATIENCE_SECONDS)
        home = swarm.home(twice)
        assert home is not None
        await _commit_twice(twice, made[twice.identity], home)
        await until(lambda: not any(_committed(a, twice) for a in auditors), PATIENCE_SECONDS)
        assert {_committed(auditor, boaster) for auditor in auditors} == {commitment}
        lives[gone.identity].cancel()

        far &= swarm.far()
        assert len(far) >= 5
        assert not any(auditor.node.envelopes.of(worker.identity.account, EPOCH) for worker, auditor in far)

        world.turn_to(EPOCH + 1, 2 * GRACE + 1)
        world.chain.send(DEPLOYER, address(DEPLOYER), b"")  # a block
        await until(lambda: all(a.auditor.audited.is_known(EPOCH) for a in auditors), PATIENCE_SECONDS)
        hash_ = await keeper.ledger.block_hash_from(int(draw_seconds(world.manifest, EPOCH)))
        account = boaster.identity.account
        drawn = drawn_slots(draw(swarm_id, EPOCH, hash_), account, commitment.slots, TERMS)
        failed = sum(slot >= SLOTS for slot in drawn)
        shown = 2 * TERMS.samples + TERMS.samples - failed
        await until(lambda: all(_shown(a) == shown for a in auditors), PATIENCE_SECONDS)
        await _lie(world, swarm, friend=withholder)
        world.turn_to(EPOCH + 1, 4.5 * GRACE + 0.5)
        await until(lambda: all(len(a.contributions.tallies(EPOCH)) == 4 for a in auditors), PATIENCE_SECONDS)
        boasted = 2 * SLOTS * max(0, 4 - 2 * failed) // 4
        expected = {gone.identity.account: SLOTS, keeper.identity.account: SLOTS}
        expected |= {account: boasted} if boasted else {}
        tallies = auditors[0].contributions.tallies(EPOCH).values()
        true = {tuple(tally.points) for tally in tallies if tally.account != LIAR.account}
        assert true == {tuple(sorted(expected.items()))}
        record = await _finish(world, keeper)
        root = merkle.sum_root(sorted(expected.items()))
        assert (record.root.epoch, record.root.contribution_root) == (EPOCH, root)
        for harness in swarm.all:
            failures = harness.node.events("service_failed")
            assert [event for event in failures if not event["transient"]] == []
        nursery.cancel_scope.cancel()
