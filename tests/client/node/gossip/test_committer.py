"""A node commits to its groups once per epoch, just before the deadline, and shows them on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio
from support.gossip_harness import GossipHarness
from support.swarm import EPOCH, Identity, make_chain_manifest
from trio.testing import MockClock

from sapo_client.node.gossip.list_uploads import LISTS_TO_NETWORK, LOOK_COST
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.audits.commitment import deadline_seconds
from sapo_protocol.audits.groups import GroupRequest, OpenedGroup, parse_opened_groups
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import Verdict
from sapo_protocol.requests import parse_response
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.tasks import assigned_task
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.topics import commitments_topic, groups_protocol
from sapo_verification.tasks.generators import derive, solution

MANIFEST = make_chain_manifest(version=2, audits=AuditTerms(samples=4, one_in=1))
SWARM = MANIFEST.swarm_id
TOPIC = commitments_topic(SWARM)
AUTHOR = Identity(1)
SLOTS = (0, 2, 3)
ASKED = int(LISTS_TO_NETWORK.burst / LOOK_COST) + 8
"""More than a network may ask at once."""

DEADLINE = deadline_seconds(MANIFEST, EPOCH)
OPENS = DEADLINE - grace_seconds(MANIFEST) / 2
"""Sent before that, it could miss rollouts of the account's other machines."""


async def block_hash_before(moment_seconds: int) -> bytes:
    """Return the hash of the chain's last block before a moment."""
    await trio.lowlevel.checkpoint()
    return moment_seconds.to_bytes(32, "big")


@dataclass
class Committing:
    """The author's node, and two peers that keep what they hear, in virtual time."""

    root: Path
    begin: float
    hub: MemoryHub = field(default_factory=MemoryHub)
    heard: list[tuple[float, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node = self.open()
        self.peer, self.late = self._peer("peer"), self._peer("late")

    def open(self) -> GossipHarness:
        """Return the author's node; opened again it is restarted, with its files."""
        return GossipHarness(
            self.hub, AUTHOR, MANIFEST, self.root, clock=self.now, block_hash_before=block_hash_before
        )

    def _peer(self, name: str) -> MemoryTransport:
        peer = MemoryTransport(self.hub, name, on_bug=_raise)
        peer.subscribe(TOPIC, self.hear)
        return peer

    def restart(self) -> None:
        """Open the node and the peers again, after an end."""
        self.node, self.peer, self.late = self.open(), self._peer("peer"), self._peer("late")

    def now(self) -> float:
        return self.begin + trio.current_time()

    def hear(self, message: bytes, _sender: str) -> Verdict:
        self.heard.append((self.now(), message))
        return Verdict.ACCEPT

    async def until(self, moment_seconds: float) -> None:
        await trio.sleep(moment_seconds - self.now())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the node and the peers, which are not connected yet."""
        async with trio.open_nursery() as nursery:
            for transport in (self.node.transport, self.peer, self.late):
                await nursery.start(transport.run)
            nursery.start_soon(self.node.run)
            yield
            nursery.cancel_scope.cancel()

    async def connect(self) -> None:
        await self.peer.connect(self.node.address)

    async def work(self) -> None:
        """Make a group in each of three slots, in the epoch."""
        beacon = await self.node.beacons.obtain(EPOCH)
        family = MANIFEST.suite.families[0]
        for slot in SLOTS:
            task = assigned_task(SWARM, beacon, account=AUTHOR.account, family=0, slot=slot)
            answer = solution(family, derive(family, task.seed))
            assert answer is not None
            texts = (answer.encode(), b"no answer")
            message = AUTHOR.message(MANIFEST, epoch=EPOCH, slot=slot, completions=texts)
            await self.node.engine.verify(self.node.engine.admit_own(message, self.now()))

    async def ask(self, request: bytes) -> tuple[OpenedGroup, ...]:
        protocol = groups_protocol(SWARM)
        answer = await self.peer.request(self.node.peer_id, protocol, request, max_response_bytes=2**20)
        return parse_opened_groups(parse_response(answer))


def in_epoch(root: Path) -> Committing:
    return Committing(root, epoch_start_seconds(MANIFEST, EPOCH) + 20)


async def test_it_commits_once_and_not_before_late_rollouts_have_arrived(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    net = in_epoch(tmp_path)
    async with net.running():
        await net.connect()
        await net.work()
        await net.until(OPENS - 0.1)
        assert net.heard == []
        await net.until(OPENS + 1)
        await net.late.connect(net.node.address)
        await net.until(DEADLINE + grace_seconds(MANIFEST))
        [(at, message)] = net.heard
        assert OPENS <= at < OPENS + 1
        commitment = net.node.engine.sampled.commitments.of(AUTHOR.account, EPOCH)
        assert commitment is not None
        assert (commitment.slots, commitment.node) == (SLOTS, AUTHOR.node)
        assert message == net.node.engine.sampled.commitments.message(AUTHOR.account, EPOCH)
    assert [(each["epoch"], each["groups"]) for each in net.node.events("committed")] == [(EPOCH, 3)]


async def test_it_sends_the_same_again_until_a_peer_has_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    net = in_epoch(tmp_path)
    async with net.running():
        await net.work()
        await net.until(DEADLINE - 1.5)
        assert len(net.node.events("committed")) == 1
        await net.connect()
        await net.until(DEADLINE + 1)
        assert [message for _, message in net.heard] == [
            net.node.engine.sampled.commitments.message(AUTHOR.account, EPOCH)
        ]
    assert len(net.node.events("committed")) == 1


async def test_a_restart_sends_no_second_commitment(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Two commitments of an account void both: the stored one is sent again."""
    net = in_epoch(tmp_path)
    async with net.running():
        await net.connect()
        await net.work()
        await net.until(OPENS + 1)
    net.restart()
    async with net.running():
        await net.connect()
        await net.until(DEADLINE + 1)
    assert len(net.heard) == 2
    assert len({message for _, message in net.heard}) == 1
    assert len(net.node.events("committed")) == 1


async def test_after_the_deadline_it_sends_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    net = in_epoch(tmp_path)
    async with net.running():
        await net.work()
        await net.until(DEADLINE)
        await net.connect()
        await net.until(DEADLINE + grace_seconds(MANIFEST))
    assert net.heard == []


async def test_an_account_without_groups_commits_to_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    net = in_epoch(tmp_path)
    async with net.running():
        await net.connect()
        await net.until(DEADLINE + 1)
    assert net.heard == []


async def test_it_shows_the_groups_that_are_asked_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    net = in_epoch(tmp_path)
    async with net.running():
        await net.connect()
        await net.work()
        await net.until(OPENS + 1)
        shown = await net.ask(GroupRequest(AUTHOR.account, EPOCH, SLOTS[1:]).to_bytes())
        own = {
            parse_envelope(each, SWARM).content_id: each
            for each in net.node.envelopes.of(AUTHOR.account, EPOCH)
        }
        commitment = net.node.engine.sampled.commitments.of(AUTHOR.account, EPOCH)
        assert commitment is not None
        contents = [parse_envelope(group.message, SWARM).content_id for group in shown]
        assert {own[content] for content in contents} == {group.message for group in shown}
        held = [
            commitment.holds(slot, c, g.path) for slot, c, g in zip(SLOTS[1:], contents, shown, strict=True)
        ]
        assert held == [True, True]
        for request in (b"", GroupRequest(AUTHOR.account, EPOCH, (0, 1)).to_bytes()):
            assert await net.ask(request) == ()


async def test_a_peer_that_asks_too_often_is_shown_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    net = in_epoch(tmp_path)
    async with net.running():
        await net.connect()
        await net.work()
        await net.until(OPENS + 1)
        request = GroupRequest(AUTHOR.account, EPOCH, SLOTS).to_bytes()
        shown = [len(await net.ask(request)) for _ in range(ASKED)]
    assert shown[0] == 3
    assert shown[-1] == 0


def _raise(error: Exception) -> None:
    raise error
