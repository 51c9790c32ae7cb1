"""A node that was away catches up beside many attackers that send rollouts of no use for every id they list.

None of these rollouts proves a fault of who sends it, so no score limits them: what does is their number, and
the order in which peers have their turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.listing_peer import ListingPeer, by_id
from support.nodes import until
from support.swarm import EPOCH, Identity, make_manifest, moment
from trio.testing import MockClock

from sapo_client.node.gossip.arrival_turns import ArrivalTurns
from sapo_client.node.gossip.catch_up import MAX_USELESS
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.envelope import Kind, SignedEnvelope
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import NodeId
from sapo_protocol.islands.catch_up import MAX_FETCHED
from sapo_protocol.manifest import Limits
from sapo_protocol.rollout import Rollout

MANIFEST = make_manifest(
    epoch_seconds=7200, limits=Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=512)
)
SWARM = MANIFEST.swarm_id
ALICE, BOB, CAROL, DAVE = (Identity(number) for number in range(1, 5))
MISSED: Final = by_id(
    SWARM, [who.message(MANIFEST, slot=slot) for who in (CAROL, DAVE) for slot in range(500)]
)
ATTACKERS: Final = 40
"""As many strangers as a node lets connect."""

LISTED: Final = 1000

Junk = Callable[[int, int], Rollout]
"""Returns the rollout of an attacker with a number."""


def _of_an_unknown_author(attacker: int, number: int) -> Rollout:
    return CAROL.rollout(node=NodeId(bytes([attacker]) * NodeId.SIZE), slot=number)


def _of_an_epoch_that_is_over(attacker: int, number: int) -> Rollout:
    return CAROL.rollout(epoch=0, slot=number * ATTACKERS + attacker)


def unsigned(rollout: Rollout) -> bytes:
    """Return a rollout as a message that costs its sender no signature."""
    return SignedEnvelope(Kind.ROLLOUT, SWARM, rollout.to_payload(), b"\x01" * 64).to_bytes()


@dataclass
class Swarm:
    """Alice, who was away, and Bob, who has everything.

    Attributes:
        now_seconds: what both take for the time, if set.
    """

    root: Path
    now_seconds: float | None = None

    def __post_init__(self) -> None:
        self.hub = MemoryHub()
        self.alice, self.bob = self._make(ALICE), self._make(BOB)
        for message in MISSED.values():
            self.bob.gossip.validate_rollout(message, "author")
        assert self.bob.envelopes.lacking(MISSED) == ()

    def _make(self, who: Identity) -> GossipHarness:
        def now() -> float:
            return moment(MANIFEST) if self.now_seconds is None else self.now_seconds

        node = GossipHarness(self.hub, who, MANIFEST, self.root / str(who.number), clock=now, audit_share=0.0)
        for author in (CAROL, DAVE):
            node.certificates.admit(author.certificate(MANIFEST).to_bytes(), node.now())
        return node

    @asynccontextmanager
    async def running(self, *attackers: ListingPeer) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for node in (self.alice, self.bob):
                await nursery.start(node.transport.run)
                nursery.start_soon(node.run)
            for attacker in attackers:
                await nursery.start(attacker.transport.run)
                await attacker.transport.connect(self.alice.address)
            await self.alice.transport.connect(self.bob.address)
            yield
            nursery.cancel_scope.cancel()

    def has_all(self) -> bool:
        return not self.alice.envelopes.lacking(MISSED)


@pytest.mark.parametrize(
    "junk", [_of_an_unknown_author, _of_an_epoch_that_is_over], ids=lambda each: each.__name__.strip("_")
)
async def test_forty_peers_with_useless_rollouts_delay_an_honest_peer_by_seconds(
    junk: Junk, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Alone Bob brings all in 12 seconds. Before turns were by use he had one in forty-one of them."""
    swarm = Swarm(tmp_path)
    attackers = [
        ListingPeer(
            swarm.hub,
            f"attacker{one}",
            SWARM,
            EPOCH,
            by_id(SWARM, [unsigned(junk(one, number)) for number in range(LISTED)]),
        )
        for one in range(ATTACKERS)
    ]
    async with swarm.running(*attackers):
        started = trio.current_time()
        await until(swarm.has_all, seconds=600)
        assert trio.current_time() - started < 20
        await trio.sleep(60)
    most = MAX_USELESS + 2 * MAX_FETCHED
    assert all(0 < sum(map(len, attacker.asked)) <= most for attacker in attackers)
    assert swarm.alice.transport.score(swarm.bob.peer_id) == 0


async def test_missing_rollouts_of_an_ended_epoch_are_not_fetched(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Else a peer would count as useless that was asked in time for what came too late."""
    swarm = Swarm(tmp_path)
    last = epoch_start_seconds(MANIFEST, EPOCH + 2)
    async with trio.open_nursery() as nursery:
        swarm.now_seconds = last - 1
        peer = ListingPeer(swarm.hub, "peer", SWARM, EPOCH, MISSED)
        await nursery.start(swarm.alice.transport.run)
        nursery.start_soon(swarm.alice.run)
        await nursery.start(peer.transport.run)
        await peer.transport.connect(swarm.alice.address)
        await until(lambda: peer.asked)
        swarm.now_seconds = last + 1
        await trio.sleep(60)
        asked = sum(map(len, peer.asked))
        nursery.cancel_scope.cancel()
    assert asked < LISTED / 2
    assert len(swarm.alice.events("admitted")) <= asked


async def test_a_useless_peer_is_asked_again_once_missing_certificates_arrived(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Rollouts of an author whose certificate no peer has are refused, until it comes by gossip."""
    swarm = Swarm(tmp_path)
    erin = Identity(5)
    messages = by_id(SWARM, [erin.message(MANIFEST, slot=slot) for slot in range(LISTED)])
    peer = ListingPeer(swarm.hub, "peer", SWARM, EPOCH, messages)
    async with trio.open_nursery() as nursery:
        await nursery.start(swarm.alice.transport.run)
        nursery.start_soon(swarm.alice.run)
        await nursery.start(peer.transport.run)
        await peer.transport.connect(swarm.alice.address)
        await until(lambda: swarm.alice.events("caught_up"))
        assert swarm.alice.envelopes.lacking(messages) == tuple(messages)
        certificate = erin.certificate(MANIFEST).to_bytes()
        swarm.alice.certificates.admit(certificate, swarm.alice.now())
        swarm.alice.gossip.repeat_requests()
        await until(lambda: not swarm.alice.envelopes.lacking(messages), seconds=120)
        nursery.cancel_scope.cancel()


async def test_the_most_useful_peer_is_served_first_and_unused_rate_is_returned(
    autojump_clock: MockClock,
) -> None:
    turns, order = ArrivalTurns(Rate(per_second=32, burst=32)), []

    async def ask(name: str, use: int) -> None:
        await turns.take(32, use)
        order.append((name, trio.current_time() - started))

    started = trio.current_time()
    await turns.take(32, 0)
    async with trio.open_nursery() as nursery:
        for name, use in (("first", 0), ("useless", -1), ("useful", 7), ("second", 0)):
            nursery.start_soon(ask, name, use)
            await trio.testing.wait_all_tasks_blocked()
        turns.give_back(32)
    assert [name for name, _ in order] == ["useful", "first", "second", "useless"]
    assert [round(seconds, 1) for _, seconds in order] == [1.0, 2.0, 3.0, 4.0]


async def test_a_cancelled_task_passes_its_turn_to_the_next(autojump_clock: MockClock) -> None:
    turns = ArrivalTurns(Rate(per_second=32, burst=32))
    await turns.take(32, 0)
    with trio.move_on_after(0.5):
        await turns.take(32, 9)
    with trio.fail_after(0.6):
        await turns.take(32, 0)
