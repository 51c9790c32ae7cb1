"""Repeated requests for the same pages, terms or groups are limited to one network's share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from support.contributions import tally_of
from support.gossip_harness import GossipHarness
from support.swarm import EPOCH, Identity, make_chain_manifest
from trio.testing import MockClock

from sapo_client.node.auditing.pages import PageExchange
from sapo_client.node.gossip import list_uploads
from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.audits.commitment import commit
from sapo_protocol.audits.groups import GroupRequest, parse_opened_groups
from sapo_protocol.contributions import page_digest, to_pages
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account
from sapo_protocol.requests import parse_response, to_page_request
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.topics import groups_protocol, pages_protocol
from sapo_verification.admission.contribution_store import ContributionStore

TERMS = AuditTerms(samples=4, one_in=1)
ISLANDS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=4, count=1)
MANIFEST = make_chain_manifest(version=2, audits=TERMS, islands=ISLANDS)
ALICE, AUDITOR = Identity(1), Identity(2)
RENTED, ELSEWHERE = "203.0.113.7", "198.51.100.9"
SECONDS = 60
FULL = 64 * 1024
LIMIT = Rate(per_second=FULL / 16, burst=4 * FULL)
"""As the real one is to a full answer: four at once, and one every sixteen seconds."""

LONG = (b"5", b"7" * 4096)

Ask = Callable[[MemoryTransport], Awaitable[tuple[bytes, ...]]]


@pytest.fixture(autouse=True)
def _small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_uploads, "LISTS_TO_NETWORK", LIMIT)


async def taken(askers: Iterable[MemoryTransport], ask: Ask) -> int:
    """Return the bytes that peers get who ask once a second."""
    size_bytes = 0
    for _ in range(SECONDS):
        for asker in askers:
            size_bytes += sum(map(len, await ask(asker)))
        await trio.sleep(1)
    return size_bytes


def peers_of(hub: MemoryHub) -> tuple[list[MemoryTransport], MemoryTransport, MemoryTransport]:
    """Return two strangers in a rented network, an auditor's node beside them, and a peer elsewhere."""
    auditor = peer_id_from_key(AUDITOR.node)
    strangers = [MemoryTransport(hub, f"mallory-{n}", on_bug=_raise, host=RENTED) for n in range(2)]
    beside = MemoryTransport(hub, auditor, on_bug=_raise, host=RENTED)
    return strangers, beside, MemoryTransport(hub, "bob", on_bug=_raise, host=ELSEWHERE)


@pytest.mark.parametrize("listed", [2, 8], ids=["two pages", "eight pages"])
async def test_uploads_of_pages_are_limited_per_network(
    autojump_clock: MockClock, listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages that are here count as one full answer, however many they are."""
    monkeypatch.setattr("sapo_client.node.auditing.pages.MAX_ANSWER_BYTES", FULL)
    store = ContributionStore(":memory:", MANIFEST.swarm_id)
    entries = tuple((Account(number.to_bytes(20, "big")), 1) for number in range(1, 1024 * listed + 1))
    pages = to_pages(entries)
    tally = replace(tally_of(ALICE, 4, {}), pages=tuple(map(page_digest, pages)))
    sent = seal(Kind.TALLY, MANIFEST.swarm_id, tally.to_payload(), ALICE.seed)
    store.add(sent.content_id, Kind.TALLY, tally, sent.to_bytes())
    store.add_pages(pages)
    hub, protocol = MemoryHub(), pages_protocol(MANIFEST.swarm_id)
    alice = MemoryTransport(hub, peer_id_from_key(ALICE.node), on_bug=_raise)
    strangers, _, bob = peers_of(hub)
    exchange = PageExchange(
        transport=alice,
        uploads=ListUploads(alice),
        contributions=store,
        swarm_id=MANIFEST.swarm_id,
        clock=lambda: 2.0,
    )

    async def ask(peer: MemoryTransport) -> tuple[bytes, ...]:
        request = to_page_request([page_digest(page) for page in pages])
        answer = await peer.request(alice.peer_id, protocol, request, max_response_bytes=MAX_ANSWER_BYTES)
        return parse_response(answer)

    async with trio.open_nursery() as nursery:
        for transport in (alice, bob, *strangers):
            await nursery.start(transport.run)
        exchange.serve()
        for peer in (bob, *strangers):
            await peer.connect(alice.addresses[0])
        all_pages = sum(map(len, pages))
        counted = min(all_pages, FULL)  # as which a copy of all pages counts
        copies = await taken(strangers, ask) / all_pages
        assert copies <= (LIMIT.burst + (SECONDS + 1) * LIMIT.per_second) / counted
        assert copies >= LIMIT.burst / counted
        assert await ask(bob) == tuple(pages)
        nursery.cancel_scope.cancel()


async def test_requests_for_missing_groups_count_against_the_limit(autojump_clock: MockClock) -> None:
    """Groups of many accounts are read to answer a request of a few bytes, also where one is missing."""
    hub = MemoryHub()
    alice = MemoryTransport(hub, peer_id_from_key(ALICE.node), on_bug=_raise)
    strangers, auditor, bob = peers_of(hub)
    uploads = ListUploads(alice, lambda peer_id: peer_id == auditor.peer_id)
    async with trio.open_nursery() as nursery:
        for transport in (alice, auditor, bob, *strangers):
            await nursery.start(transport.run)
        for peer in (auditor, bob, *strangers):
            await peer.connect(alice.addresses[0])
        most = LIMIT.burst // list_uploads.LOOK_COST
        looks = [uploads.may_ask(peer.peer_id) for _ in range(int(most)) for peer in strangers]
        assert looks == [True] * int(most) + [False] * int(most)
        assert [uploads.may_ask(peer.peer_id) for peer in (auditor, bob)] == [True, True]
        nursery.cancel_scope.cancel()


async def test_uploads_of_drawn_groups_are_limited_by_network_except_for_auditors(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A host beside an auditor's takes nothing from it: accounts are paid what auditors are shown."""
    begin = epoch_start_seconds(MANIFEST, EPOCH) + 10
    hub = MemoryHub()
    alice = GossipHarness(hub, ALICE, MANIFEST, tmp_path, clock=lambda: begin + trio.current_time())
    alice.engine.set_auditors(Auditors((AUDITOR.account,)))
    alice.certificates.admit(AUDITOR.certificate(MANIFEST).to_bytes(), alice.now())
    strangers, auditor, bob = peers_of(hub)
    slots = range(4)

    async def ask(peer: MemoryTransport) -> tuple[bytes, ...]:
        request = GroupRequest(ALICE.account, EPOCH, tuple(slots)).to_bytes()
        protocol = groups_protocol(MANIFEST.swarm_id)
        answer = await peer.request(alice.peer_id, protocol, request, max_response_bytes=MAX_ANSWER_BYTES)
        return parse_response(answer)

    async with trio.open_nursery() as nursery:
        for transport in (alice.transport, bob, auditor, *strangers):
            await nursery.start(transport.run)
        nursery.start_soon(alice.run)
        for peer in (bob, auditor, *strangers):
            await peer.connect(alice.address)
        await trio.sleep(1)
        made = [
            await alice.publish(epoch=EPOCH, slot=slot, completions=(b"5", b"7" * 4096)) for slot in slots
        ]
        groups = [(one.rollout.slot, one.content_id) for one in made]
        commitment = commit(ALICE.node, ALICE.account, EPOCH, groups)
        message = seal(Kind.COMMITMENT, MANIFEST.swarm_id, commitment.to_payload(), ALICE.seed).to_bytes()
        await trio.sleep(epoch_start_seconds(MANIFEST, EPOCH + 1) + 1 - alice.now())
        alice.engine.sampled.commitments.admit(message, alice.now())
        size_bytes = await taken(strangers, ask)
        assert LIMIT.burst / 2 < size_bytes <= LIMIT.burst + (SECONDS + 1) * LIMIT.per_second
        for peer in (auditor, bob):
            assert [each.message for each in parse_opened_groups(await ask(peer))] == [
                alice.message(one) for one in made
            ]
        nursery.cancel_scope.cancel()


def _raise(error: Exception) -> None:
    raise error
