"""A node that was offline catches up from an honest neighbour despite attackers' lists, messages or silence.

Times are those of a mock clock: what an attacker costs is measured in seconds that nobody waits for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

import pytest
import trio
from support.calls import calls_of
from support.gossip_harness import GossipHarness
from support.listing_peer import ListingPeer, by_id
from support.nodes import until
from support.swarm import EPOCH, EPOCH_SECONDS, Identity, make_manifest, moment
from trio.testing import MockClock

from sapo_client.node.gossip.catch_up import MAX_FAULTS, MAX_PAGES
from sapo_client.node.gossip.catch_up_server import LISTING_COST, UPLOAD, UPLOAD_TO_NETWORK
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.constants import EPOCH_WINDOW
from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.catch_up import (
    MAX_FETCH_BYTES,
    MAX_FETCHED,
    MAX_LISTED,
    CatchUpStatus,
    FetchedRollouts,
    IdPage,
    IdRequest,
    parse_fetched,
    parse_id_page,
    to_fetch_request,
)
from sapo_protocol.topics import rollout_ids_protocol, rollouts_protocol
from sapo_verification.admission.envelope_store import KEPT_EPOCHS, EnvelopeStore

MANIFEST = make_manifest()
SWARM = MANIFEST.swarm_id
ALICE, BOB, CAROL, DAVE = (Identity(number) for number in range(1, 5))
SLOTS: Final = 24
MISSED: Final = by_id(
    SWARM, [who.message(MANIFEST, slot=slot) for who in (CAROL, DAVE) for slot in range(SLOTS)]
)
ATTACKERS: Final = 6

Attack = Callable[[ListingPeer], None]


def _invented() -> Iterator[ContentId]:
    return (ContentId(number.to_bytes(32, "little")) for number in count(1))


def _lists_what_does_not_exist(peer: ListingPeer) -> None:
    ids = _invented()
    peer.listed = sorted([*peer.listed, *(next(ids) for _ in range(500))])
    peer.send = lambda _: None


def _lists_a_hundred_thousand(peer: ListingPeer) -> None:
    ids = _invented()
    peer.listed = sorted([*peer.listed, *(next(ids) for _ in range(100_000))])
    peer.send = lambda content_id: MISSED.get(content_id, b"")


def _lists_for_ever(peer: ListingPeer) -> None:
    """Every list is empty, and goes on further up."""
    places = _invented()

    async def page(_peer_id: str, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        peer.pages += 1
        return IdPage(CatchUpStatus.GIVEN, (), ContentId(bytes(reversed(next(places))))).to_bytes()

    peer.transport.serve(rollout_ids_protocol(SWARM), page)


def _withholds(peer: ListingPeer) -> None:
    peer.send = lambda _: None


def _sends_others_than_asked(peer: ListingPeer) -> None:
    other = BOB.message(MANIFEST, slot=7)
    peer.send = lambda _: other


def _sends_forged_copies(peer: ListingPeer) -> None:
    """Of the same content, so of the same id, with a wrong signature."""
    peer.send = lambda content_id: MISSED[content_id][:-1] + bytes([MISSED[content_id][-1] ^ 1])


def _sends_noise(peer: ListingPeer) -> None:
    peer.send = lambda _: b"\xff" * 9


def _never_answers(peer: ListingPeer) -> None:
    peer.delay_seconds = 1_000.0


def _withholds_slowly(peer: ListingPeer) -> None:
    peer.delay_seconds = 9.0
    peer.send = lambda _: None


def _sends_slowly(peer: ListingPeer) -> None:
    peer.delay_seconds = 9.0


def _is_busy(peer: ListingPeer) -> None:
    async def busy(_peer_id: str, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        return FetchedRollouts(CatchUpStatus.BUSY).to_bytes()

    peer.transport.serve(rollouts_protocol(SWARM), busy)


def _answers_noise(peer: ListingPeer) -> None:
    async def noise(_peer_id: str, _request: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        peer.pages += 1
        return b"\xff"

    peer.transport.serve(rollouts_protocol(SWARM), noise)
    peer.transport.serve(rollout_ids_protocol(SWARM), noise)


BLAMELESS: Final = (
    _lists_what_does_not_exist,
    _lists_for_ever,
    _withholds,
    _sends_others_than_asked,
    _never_answers,
    _withholds_slowly,
    _sends_slowly,
    _is_busy,
    _answers_noise,
)
"""Attacks that prove no fault: they cost the attacker nothing but being asked no further."""

BLAMED: Final = (_sends_forged_copies, _sends_noise)


def make(hub: MemoryHub, who: Identity, root: Path, now: float | None = None) -> GossipHarness:
    """Return a node that knows the authors of what was missed."""
    clock = None if now is None else lambda: now
    node = GossipHarness(hub, who, MANIFEST, root / str(who.number), clock=clock)
    for author in (CAROL, DAVE):
        node.certificates.admit(author.certificate(MANIFEST).to_bytes(), node.now())
    return node


@asynccontextmanager
async def running(*nodes: GossipHarness) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        for node in nodes:
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        yield nursery
        nursery.cancel_scope.cancel()
    for node in nodes:
        assert node.events("service_failed") == []


def hold(node: GossipHarness) -> None:
    """Have a node admit what another one misses."""
    for message in MISSED.values():
        node.gossip.validate_rollout(message, "author")
    assert has_all(node)


def has_all(node: GossipHarness) -> bool:
    """Whether a node has everything that was missed."""
    return not node.envelopes.lacking(MISSED)


@pytest.mark.parametrize("attack", [*BLAMELESS, *BLAMED], ids=lambda each: each.__name__.strip("_"))
async def test_one_honest_neighbour_among_attackers_suffices_for_catch_up(
    attack: Attack, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Six attackers are connected before it; they list everything too, so that they can be asked for it."""
    hub = MemoryHub()
    alice, bob = make(hub, ALICE, tmp_path), make(hub, BOB, tmp_path)
    hold(bob)
    attackers = [ListingPeer(hub, f"attacker{n}", SWARM, EPOCH, MISSED) for n in range(ATTACKERS)]
    async with running(alice, bob) as nursery:
        for attacker in attackers:
            attack(attacker)
            await nursery.start(attacker.transport.run)
            await attacker.transport.connect(alice.address)
        await until(lambda: all(attacker.pages or attack is _never_answers for attacker in attackers))
        await alice.transport.connect(bob.address)
        started = trio.current_time()
        await until(lambda: has_all(alice), seconds=60)
        assert trio.current_time() - started < 25  # two time-outs of ten seconds, and some pauses
        await trio.sleep(300)
        assert [alice.transport.score(bob.peer_id), bob.transport.score(alice.peer_id)] == [0, 0]
        scores = [alice.transport.score(attacker.peer_id) for attacker in attackers]
    if attack in BLAMED:
        assert max(scores) < 0
    else:
        assert scores == [0] * ATTACKERS
    for attacker in attackers:
        assert attacker.pages <= (EPOCH_WINDOW + 1) * MAX_PAGES
        fetches = MAX_FAULTS if attack is not _sends_slowly else 1 + len(MISSED) // MAX_FETCHED
        assert len(attacker.asked) <= fetches + 1


async def test_a_list_of_a_hundred_thousand_ids_is_requested_page_by_page(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    alice, bob = make(hub, ALICE, tmp_path), make(hub, BOB, tmp_path)
    hold(bob)
    attacker = ListingPeer(hub, "attacker", SWARM, EPOCH, MISSED)
    _lists_a_hundred_thousand(attacker)
    async with running(alice, bob) as nursery:
        await nursery.start(attacker.transport.run)
        await attacker.transport.connect(alice.address)
        await until(lambda: attacker.asked)
        plan = alice.gossip._catch_up._plan
        assert len(plan) <= MAX_LISTED
        await alice.transport.connect(bob.address)
        await until(lambda: has_all(alice))
        await trio.sleep(60)
        assert (len(plan), attacker.pages <= 2) == (0, True)


async def test_rollouts_are_fetched_once_each_from_several_peers(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    alice = make(hub, ALICE, tmp_path)
    peers = [ListingPeer(hub, f"peer{n}", SWARM, EPOCH, MISSED) for n in range(3)]
    async with running(alice) as nursery:
        for peer in peers:
            peer.delay_seconds = 0.5
            await nursery.start(peer.transport.run)
            await peer.transport.connect(alice.address)
        await until(lambda: has_all(alice))
        await until(lambda: len(alice.events("caught_up")) == len(peers))
    asked = [content_id for peer in peers for ids in peer.asked for content_id in ids]
    assert sorted(asked) == sorted(MISSED)
    assert sum(bool(peer.asked) for peer in peers) > 1
    assert len(alice.events("admitted")) == len(MISSED)


async def test_admitted_rollouts_without_a_place_are_not_fetched_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    alice = make(hub, ALICE, tmp_path)
    hold(alice)
    alice.envelopes.forget(EPOCH + KEPT_EPOCHS)
    peer = ListingPeer(hub, "peer", SWARM, EPOCH, MISSED)
    async with running(alice) as nursery:
        await nursery.start(peer.transport.run)
        await peer.transport.connect(alice.address)
        await until(lambda: peer.pages > 0)
        await trio.sleep(30)
    assert (peer.asked, alice.envelopes.lacking(MISSED)) == ([], tuple(MISSED))


async def test_certificates_of_unknown_authors_are_requested_from_the_same_peer(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An attacker sends the rollouts and withholds the certificates; an honest peer has both."""
    hub = MemoryHub()
    alice = GossipHarness(hub, ALICE, MANIFEST, tmp_path / "alice")
    attacker = ListingPeer(hub, "attacker", SWARM, EPOCH, MISSED)
    bob = make(hub, BOB, tmp_path)
    hold(bob)
    async with running(alice, bob) as nursery:
        await nursery.start(attacker.transport.run)
        await attacker.transport.connect(alice.address)
        await until(lambda: alice.events("caught_up"))
        assert alice.envelopes.lacking(MISSED) == tuple(MISSED)
        assert alice.transport.score(attacker.peer_id) == 0
        await alice.transport.connect(bob.address)
        await until(lambda: has_all(alice))


async def test_rollouts_of_the_previous_epoch_are_fetched_and_older_ones_are_not(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    now = moment(MANIFEST) + EPOCH_SECONDS
    bob = make(hub, BOB, tmp_path)
    hold(bob)
    alice = make(hub, ALICE, tmp_path, now)
    later = make(hub, CAROL, tmp_path, now + EPOCH_SECONDS)
    async with running(bob, alice, later):
        await alice.transport.connect(bob.address)
        await until(lambda: has_all(alice))
        await later.transport.connect(bob.address)
        await until(lambda: later.events("peer_connected"))
        await trio.sleep(30)
    assert later.envelopes.lacking(MISSED) == tuple(MISSED)
    assert later.events("caught_up", "refused") == []


@pytest.mark.parametrize(("networks", "limit"), [(1, UPLOAD_TO_NETWORK), (10, UPLOAD)])
async def test_a_server_sends_neither_a_network_nor_strangers_together_more_than_their_limit(
    tmp_path: Path, autojump_clock: MockClock, networks: int, limit: Rate
) -> None:
    """Ten peer ids ask for full answers without end, at one address or at one each."""
    hub = MemoryHub()
    bob = GossipHarness(hub, BOB, MANIFEST, tmp_path / "bob")
    bob.certificates.admit(CAROL.certificate(MANIFEST).to_bytes(), bob.now())
    long = by_id(
        SWARM, [CAROL.message(MANIFEST, slot=slot, completions=(b"x" * 8000,) * 8) for slot in range(8)]
    )
    for message in long.values():
        bob.gossip.validate_rollout(message, "author")
    hosts = [f"203.0.113.{1 + n % networks}" for n in range(10)]
    askers = [ListingPeer(hub, f"asker{n}", SWARM, EPOCH, host=host) for n, host in enumerate(hosts)]
    sent, statuses = 0, set()
    async with running(bob) as nursery:
        for asker in askers:
            await nursery.start(asker.transport.run)
            await asker.transport.connect(bob.address)
        started = trio.current_time()
        for _ in range(20):
            for asker in askers:
                answer = await asker.transport.request(
                    bob.peer_id,
                    rollouts_protocol(SWARM),
                    to_fetch_request(tuple(long)),
                    max_response_bytes=MAX_FETCH_BYTES,
                )
                fetched = parse_fetched(answer, len(long))
                assert fetched is not None
                statuses.add(fetched.status)
                sent += len(answer)
            await trio.sleep(1)
        elapsed = trio.current_time() - started
    most = limit.burst + elapsed * limit.per_second
    assert 0.9 * most < sent < 1.1 * most
    assert statuses == {CatchUpStatus.GIVEN, CatchUpStatus.BUSY}


async def test_a_list_that_is_refused_is_not_read(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Thousands of rows are read for one list, so a peer beyond its limit must not cause that."""
    hub = MemoryHub()
    bob = GossipHarness(hub, BOB, MANIFEST, tmp_path / "bob")
    asker = ListingPeer(hub, "asker", SWARM, EPOCH)
    statuses = []
    async with running(bob) as nursery:
        await nursery.start(asker.transport.run)
        await asker.transport.connect(bob.address)
        with calls_of(EnvelopeStore.listed) as read:
            for _ in range(2 * int(UPLOAD_TO_NETWORK.burst // LISTING_COST)):
                answer = await asker.transport.request(
                    bob.peer_id,
                    rollout_ids_protocol(SWARM),
                    IdRequest(EPOCH).to_bytes(),
                    max_response_bytes=MAX_FETCH_BYTES,
                )
                page = parse_id_page(answer, None)
                assert page is not None
                statuses.append(page.status)
    assert set(statuses) == {CatchUpStatus.GIVEN, CatchUpStatus.BUSY}
    assert read() == statuses.count(CatchUpStatus.GIVEN)
