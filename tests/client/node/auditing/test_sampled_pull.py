"""An auditor pulls drawn groups from an island to which it is not subscribed, also from dishonest members.

Nodes, gossip, engines and the auditor's side are the real ones, on an in-memory network in virtual time; the
chain is a function of time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count, islice
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import EPOCH, Identity, make_chain_manifest
from trio.testing import MockClock

from sapo_client.node.auditing.sample import SampleAudit
from sapo_client.swarm.simulated.memory import LinkConditions, MemoryHub
from sapo_protocol.audits.commitment import Commitment, commit
from sapo_protocol.audits.draw import draw, draw_seconds, drawn_slots
from sapo_protocol.audits.groups import OpenedGroup, parse_group_request
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, parse_envelope, seal
from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.islands.homes import drawing_epoch, home_island, visited_island
from sapo_protocol.tasks import assigned_task
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.topics import commitments_topic, groups_protocol, rollouts_topic
from sapo_verification.tasks.generators import derive, solution
from sapo_verification.types import AdmittedRollout

TERMS = AuditTerms(samples=4, one_in=1)
ISLANDS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=4, count=4)
MANIFEST = make_chain_manifest(version=2, audits=TERMS, islands=ISLANDS)
SWARM = MANIFEST.swarm_id
SLOTS = 6
GRACE = 6
OVER = epoch_start_seconds(MANIFEST, EPOCH + 1)
TALLIED = 4.5 * GRACE + MANIFEST.finality_seconds
AUDITOR = Identity(1)


def block_hash(moment_seconds: int) -> bytes:
    """Return the hash of the block at a time."""
    return moment_seconds.to_bytes(32, "big")


async def block_hash_before(moment_seconds: int) -> bytes:
    """Return it as the chain of a node."""
    await trio.lowlevel.checkpoint()
    return block_hash(moment_seconds)


def beacon_of(epoch: int) -> Digest:
    """Return an epoch's beacon."""
    before = epoch_start_seconds(MANIFEST, epoch) - MANIFEST.finality_seconds
    return beacon(SWARM, epoch, block_hash(before))


def home(who: Identity, epoch: int) -> int:
    """Return the island of an identity's account."""
    drawn = drawing_epoch(SWARM, who.account, epoch, ISLANDS.period_epochs)
    return home_island(SWARM, beacon_of(drawn), who.account, 4)


def hears(who: Identity) -> set[int]:
    """Return the islands to which an identity's node is subscribed during the epoch."""
    epochs = range(EPOCH - 1, EPOCH + 3)
    visits = set()
    for epoch in epochs:
        drawn = drawing_epoch(SWARM, who.node, epoch, ISLANDS.period_epochs)
        visits.add(visited_island(SWARM, beacon_of(drawn), who.node, home=home(who, epoch), count=4))
    return visits | {home(who, epoch) for epoch in epochs}


ISLAND = min({0, 1, 2, 3} - hears(AUDITOR))
"""One that the auditor does not hear."""

MEMBERS = tuple(islice((who for who in map(Identity, count(2)) if home(who, EPOCH) == ISLAND), 9))
HONEST, GONE, BOASTER, WITHHOLDER, STALLER, TWICE, LATE, DOUBLER, EQUIVOCATOR = MEMBERS


@dataclass
class Chain:
    """A chain that has a block in each second, on which all identities are registered."""

    people: Sequence[Identity]

    async def block_hash_from(self, timestamp_seconds: int) -> bytes:
        """Return the hash of the block at a time."""
        await trio.lowlevel.checkpoint()
        return block_hash(timestamp_seconds)

    async def live_accounts(self) -> Collection[tuple[Account, NodeId]]:
        """Return all identities."""
        await trio.lowlevel.checkpoint()
        return {(who.account, who.node) for who in self.people}


@dataclass
class Island:
    """The members' nodes and the auditor's, in virtual time from the middle of the epoch on."""

    root: Path
    hub: MemoryHub = field(default_factory=lambda: MemoryHub(1, LinkConditions(0.02, 0.15)))

    def __post_init__(self) -> None:
        begin = epoch_start_seconds(MANIFEST, EPOCH) + 10
        self.clock: Callable[[], float] = lambda: begin + trio.current_time()
        self.nodes = {who: self._node(who) for who in (AUDITOR, *MEMBERS)}
        auditor = self.nodes[AUDITOR]
        for node in self.nodes.values():
            node.engine.set_auditors(Auditors((AUDITOR.account,)))
        self.sample = SampleAudit(
            engine=auditor.engine,
            transport=auditor.transport,
            ledger=Chain(MEMBERS),
            beacons=auditor.beacons,
            clock=self.clock,
            events=auditor.log,
        )
        self.lives = {who: trio.CancelScope() for who in self.nodes}

    def _node(self, who: Identity) -> GossipHarness:
        root = self.root / str(who.number)
        return GossipHarness(
            self.hub,
            who,
            MANIFEST,
            root,
            clock=self.clock,
            block_hash_before=block_hash_before,
            audit_share=0,
        )

    async def run(self, nursery: trio.Nursery) -> None:
        """Start all nodes, connect them and wait until each knows all of its island."""
        for who, node in self.nodes.items():
            nursery.start_soon(self._live, who)
            await until(lambda node=node: self.hub.node(node.peer_id))  # type: ignore[misc]
        for left, right in combinations(self.nodes.values(), 2):
            await right.transport.connect(left.address)
        await until(lambda: all(node.knows(who) for node in self.nodes.values() for who in MEMBERS))
        nursery.start_soon(self.sample.run)

    async def _live(self, who: Identity) -> None:
        node = self.nodes[who]
        with self.lives[who]:
            async with trio.open_nursery() as nursery:
                await nursery.start(node.transport.run)
                nursery.start_soon(node.run)

    async def make(self, who: Identity, slot: int, *, right: int = 1) -> bytes:
        """Return the message of a group of right answers and one wrong one."""
        found = await self.nodes[who].beacons.obtain(EPOCH)
        task = assigned_task(SWARM, found, account=who.account, family=0, slot=slot)
        family = MANIFEST.suite.families[0]
        answer = solution(family, derive(family, task.seed))
        assert answer is not None
        answers = (answer.encode(),) * right + (b"no answer",)
        return who.message(MANIFEST, epoch=EPOCH, slot=slot, completions=answers)

    async def work(self, who: Identity, *, checks: bool = True) -> list[AdmittedRollout]:
        """Make six groups."""
        node, made = self.nodes[who], []
        for slot in range(SLOTS):
            message = await self.make(who, slot)
            made.append(node.engine.admit_own(message, node.now()))
            await node.gossip.publish(made[-1], message)
            if checks:
                await node.engine.verify(made[-1])
        return made

    async def publish(self, who: Identity, topic: str, message: bytes) -> None:
        """Send any message from an identity's node."""
        await self.nodes[who].transport.publish(topic, message)

    def commit(self, who: Identity, groups: dict[int, ContentId]) -> tuple[Commitment, bytes]:
        """Return a commitment of an identity, and its message."""
        commitment = commit(who.node, who.account, EPOCH, groups.items())
        return commitment, seal(Kind.COMMITMENT, SWARM, commitment.to_payload(), who.seed).to_bytes()

    def claim(self, who: Identity, groups: dict[int, ContentId]) -> Commitment:
        """Make an identity's node send this commitment in time instead of its own."""
        commitment, message = self.commit(who, groups)
        self.nodes[who].engine.sampled.commitments.admit(message, self.clock())
        return commitment

    def serve(self, who: Identity, shown: dict[int, bytes], tree: ContentTree) -> None:
        """Make an identity's node provide these messages for its own slots, and no other groups."""

        async def show(_peer_id: str, request: bytes) -> bytes:
            await trio.lowlevel.checkpoint()
            asked = parse_group_request(request)
            assert asked is not None
            slots = [slot for slot in asked.slots if asked.account == who.account and slot in shown]
            return encode(tuple(OpenedGroup(shown[slot], tree.path(slot)).to_bytes() for slot in slots))

        self.nodes[who].transport.serve(groups_protocol(SWARM), show)

    async def until(self, seconds: float) -> None:
        """Sleep until so long after the epoch's end."""
        await trio.sleep(OVER + seconds - self.clock())

    def points(self) -> dict[Account, int]:
        """Return what the auditor would pay."""
        return dict(self.sample.points(EPOCH, (), None))

    def drawn(self, commitment: Commitment) -> tuple[int, ...]:
        """Return the slots that are drawn of a commitment."""
        drawn = draw(SWARM, EPOCH, block_hash(int(draw_seconds(MANIFEST, EPOCH))))
        return drawn_slots(drawn, commitment.account, commitment.slots, TERMS)


async def _never(_peer_id: str, _request: bytes) -> bytes:
    await trio.sleep_forever()
    raise AssertionError


async def test_no_account_is_paid_more_than_it_made(tmp_path: Path, autojump_clock: MockClock) -> None:
    island = Island(tmp_path)
    async with trio.open_nursery() as nursery:
        await island.run(nursery)
        made = {who: await island.work(who) for who in MEMBERS if who not in (WITHHOLDER, LATE)}
        made[LATE] = await island.work(LATE, checks=False)
        withheld = [await island.make(WITHHOLDER, slot) for slot in range(SLOTS)]  # in no node's store
        second = await island.make(EQUIVOCATOR, 0, right=2)
        await island.publish(EQUIVOCATOR, rollouts_topic(SWARM, ISLAND), second)
        await island.until(1)
        await until(lambda: len(island.nodes[HONEST].envelopes.of(GONE.account, EPOCH)) == SLOTS)

        true = {who: {one.rollout.slot: one.content_id for one in made[who]} for who in made}
        true[WITHHOLDER] = {slot: parse_envelope(one, SWARM).content_id for slot, one in enumerate(withheld)}
        claims = {BOASTER: {slot: ContentId(bytes([slot]) * 32) for slot in range(SLOTS, 2 * SLOTS)}}
        claims[DOUBLER] = {SLOTS + slot: content for slot, content in true[DOUBLER].items()}
        commitments = {}
        for who, more in claims.items():
            groups = true[who] | more
            commitments[who] = island.claim(who, groups)
            shown = {one.rollout.slot: island.nodes[who].message(one) for one in made[who]}
            if who is DOUBLER:  # a good group for each slot, the same one twice
                shown |= {SLOTS + slot: message for slot, message in shown.items()}
            island.serve(who, shown, ContentTree(list(groups.values())))
        island.claim(WITHHOLDER, true[WITHHOLDER])
        island.serve(WITHHOLDER, {}, ContentTree(list(true[WITHHOLDER].values())))
        island.nodes[STALLER].transport.serve(groups_protocol(SWARM), _never)

        await island.until(GRACE - 1)
        auditor = island.nodes[AUDITOR].engine
        assert auditor.islands.rollouts.isdisjoint({ISLAND})
        assert not any(auditor.envelopes.of(who.account, EPOCH) for who in MEMBERS)
        topic = commitments_topic(SWARM, ISLAND)
        _, other = island.commit(TWICE, {0: true[TWICE][0]})
        await island.publish(TWICE, topic, other)
        island.lives[GONE].cancel()
        await island.until(GRACE + 1)
        _, late = island.commit(LATE, true[LATE])
        await island.publish(LATE, topic, late)

        await island.until(TALLIED)
        failed = {who: sum(slot >= SLOTS for slot in island.drawn(one)) for who, one in commitments.items()}
        boasted = {who.account: 2 * SLOTS * max(0, 4 - 2 * times) // 4 for who, times in failed.items()}
        expected = {who.account: SLOTS for who in (HONEST, GONE, STALLER)}
        expected |= {account: points for account, points in boasted.items() if points}
        assert island.points() == expected
        for node in island.nodes.values():
            assert node.events("service_failed") == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stallers", [4])
async def test_members_that_never_answer_reduce_no_honest_pay(
    tmp_path: Path, autojump_clock: MockClock, stallers: int
) -> None:
    """The author is offline, and so many other subscribers of its island keep every request open."""
    island = Island(tmp_path)
    async with trio.open_nursery() as nursery:
        await island.run(nursery)
        gone, *rest = MEMBERS
        workers = [gone, *rest[stallers:]]
        for who in workers:
            await island.work(who)
        await island.until(GRACE - 1)
        island.lives[gone].cancel()
        for who in rest[:stallers]:
            island.nodes[who].transport.serve(groups_protocol(SWARM), _never)
        await island.until(TALLIED)
        assert island.points() == {who.account: SLOTS for who in workers}
        nursery.cancel_scope.cancel()
