"""Peers of a later version, and attackers who imitate them: no penalty, and nothing is forwarded."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
import trio
from support.gossip_harness import UNPACED, GossipHarness
from support.later import later_kind, later_rollout
from support.listing_peer import ListingPeer, by_id
from support.nodes import until
from support.swarm import EPOCH, Identity, make_manifest
from trio.testing import MockClock

from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_client.swarm.transport import Handler, TransportError
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.equivocation import prove_equivocation
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import ContentId
from sapo_protocol.requests import to_response
from sapo_protocol.topics import (
    equivocations_protocol,
    rollouts_topic,
)

MANIFEST = make_manifest()
SWARM = MANIFEST.swarm_id
ALICE, BOB, CAROL = (Identity(number) for number in range(1, 4))
ROLLOUTS = rollouts_topic(SWARM)

Start = Callable[..., GossipHarness]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that creates a node of an identity."""
    hub = MemoryHub()
    return lambda who, limits=None: GossipHarness(
        hub, who, MANIFEST, tmp_path / str(who.number), transport_limits=limits
    )


@asynccontextmanager
async def in_a_row(*nodes: GossipHarness) -> AsyncIterator[trio.Nursery]:
    """Run nodes that know each other's certificates, each connected to the one before it alone."""
    for one, other in permutations(nodes, 2):
        one.certificates.admit(other.identity.certificate(MANIFEST).to_bytes(), one.now())
    async with trio.open_nursery() as nursery:
        for each in nodes:
            await nursery.start(each.transport.run)
            nursery.start_soon(each.run)
        for left, right in pairwise(nodes):
            await right.transport.connect(left.address)
        await until(lambda: all(each.knows(each) and each.events("peer_connected") for each in nodes))
        yield nursery
        nursery.cancel_scope.cancel()


def _stored(node: GossipHarness) -> dict[str, list[Any]]:
    """Return all rows of all tables of a node's database."""
    with closing(sqlite3.connect(node.root / "node.sqlite")) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


LATER = {
    "a kind": later_kind(),
    "a kind with much in it": later_kind(bytes(100_000)),
    "the first reserved kind": later_kind(kind=max(Kind) + 1),
    "a rollout": later_rollout(slot=3),
    "a rollout whose answers are elsewhere": later_rollout(slot=3, completions=(), more={7: (b"7", b"8")}),
}


@pytest.mark.parametrize("name", LATER)
async def test_messages_of_a_later_version_are_neither_penalised_nor_forwarded(
    start: Start, name: str, autojump_clock: MockClock
) -> None:
    alice, bob, carol = map(start, (ALICE, BOB, CAROL))
    async with in_a_row(alice, bob, carol):
        before = _stored(bob)
        await alice.transport.publish(ROLLOUTS, LATER[name])
        await until(lambda: bob.telemetry.refusals == {Reason.RESERVED: 1})
        assert _stored(bob) == before
        sent = await alice.publish(slot=3)  # of the same slot: nothing took it
        await until(carol.pooled)
        assert bob.transport.score(alice.peer_id) == 0
    assert bob.pooled() == carol.pooled() == {sent.content_id}
    assert carol.telemetry.refusals == {}
    assert [bob.events("equivocation_proved"), carol.events("equivocation_proved")] == [[], []]


async def test_a_hundred_variants_of_one_rollout_count_once_without_penalty(
    start: Start, autojump_clock: MockClock
) -> None:
    """Keys added by the author or by another peer, before or after the genuine message."""
    alice, bob = start(ALICE), start(BOB)
    async with in_a_row(alice, bob):
        for number in range(50):
            await alice.transport.publish(ROLLOUTS, later_rollout(more={7 + number % 17: number}))
        sent = await alice.publish()
        await until(bob.pooled)
        for number in range(50):
            await alice.transport.publish(ROLLOUTS, later_rollout(completions=(b"%d" % number,)))
        await until(lambda: bob.telemetry.refusals[Reason.RESERVED] == 100)
        assert bob.transport.score(alice.peer_id) == 0
    assert bob.pooled() == {sent.content_id}
    assert bob.engine.proofs.messages() == ()
    assert bob.telemetry.refusals == {Reason.RESERVED: 100}


async def test_a_flood_of_reserved_messages_is_cut_and_nothing_is_stored(
    start: Start, autojump_clock: MockClock
) -> None:
    alice, bob = start(ALICE, UNPACED), start(BOB)
    limits = TransportLimits()
    async with in_a_row(alice, bob):
        before, known = _stored(bob), len(bob.certificates)
        for number in range(2 * int(limits.messages.burst)):
            await alice.transport.publish(ROLLOUTS, later_kind(number.to_bytes(2, "big")))
        await until(lambda: bob.transport.peers() == ())  # for its rate, and not for what it sent
        refused = bob.telemetry.refusals[Reason.RESERVED]
        assert limits.messages.burst - 10 <= refused <= limits.messages.burst + limits.messages.per_second
        assert (_stored(bob), len(bob.certificates), bob.pooled()) == (before, known, set())
        assert bob.transport.take_floods()[alice.peer_id] > 0


async def test_reserved_items_in_responses_are_skipped(start: Start, autojump_clock: MockClock) -> None:
    """A newcomer asks peers of a later version for all that they hold."""
    bob = start(BOB)
    one, other = (CAROL.message(MANIFEST, completions=(b"%d" % n,)) for n in range(2))
    proved = prove_equivocation(one, other, SWARM)
    certificates = (later_kind(), ALICE.certificate(MANIFEST).to_bytes(), later_kind(b"1"))
    sent = by_id(SWARM, [later_rollout(slot=1), ALICE.message(MANIFEST)])
    later = ListingPeer(
        bob.hub,
        "later",
        SWARM,
        EPOCH,
        {**sent, ContentId(bytes(32)): later_kind()},
        certificates=certificates,
    )
    proofs = (later_kind(), proved.to_envelope().to_bytes())
    later.transport.serve(equivocations_protocol(SWARM), _answering(proofs))
    async with trio.open_nursery() as nursery:
        await nursery.start(later.transport.run)
        await nursery.start(bob.transport.run)
        nursery.start_soon(bob.run)
        await bob.transport.connect(later.address)
        await until(lambda: bob.events("caught_up"))
        nursery.cancel_scope.cancel()
    assert bob.knows(ALICE)
    assert bob.pooled() == {parse_envelope(ALICE.message(MANIFEST), SWARM).content_id}
    assert bob.telemetry.refusals[Reason.RESERVED] == 5
    [caught_up] = bob.events("caught_up")
    assert (caught_up["listed"], caught_up["brought"], caught_up["faults"]) == (3, 1, 0)


def _answering(messages: tuple[bytes, ...]) -> Handler:
    async def answer(_peer_id: str, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return to_response(messages)

    return answer


def _raise(error: Exception) -> None:
    raise error


async def test_requests_for_unknown_protocols_are_not_penalised(
    start: Start, autojump_clock: MockClock
) -> None:
    alice, bob = start(ALICE), start(BOB)
    async with in_a_row(alice, bob):
        for number in range(20):
            protocol = f"/sapo/1/{SWARM}/of-a-later-version-{number}"
            with pytest.raises(TransportError):
                await alice.transport.request(bob.peer_id, protocol, b"", max_response_bytes=9)
        assert [alice.transport.score(bob.peer_id), bob.transport.score(alice.peer_id)] == [0, 0]
