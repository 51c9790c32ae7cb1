"""Repeated requests for the same list are limited to one network's share, for any number of peer ids."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.swarm import Identity, make_manifest
from trio.testing import MockClock

from sapo_client.node.gossip import list_uploads
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.requests import parse_response, to_request
from sapo_protocol.topics import certificates_protocol, contributions_protocol

MANIFEST = make_manifest()
ALICE = Identity(1)
MEMBERS = [Identity(number) for number in range(10, 50)]
CERTIFICATES = [member.certificate(MANIFEST).to_bytes() for member in MEMBERS]
SECONDS = 60
LOOK = 1024
LIMIT = Rate(per_second=64, burst=4 * sum(map(len, CERTIFICATES)))
"""As the real one is to a full answer: four at once, and little afterwards."""


@pytest.fixture
async def alice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GossipHarness:
    """Return a node that knows all members, and does not run yet."""
    monkeypatch.setattr(list_uploads, "LISTS_TO_NETWORK", LIMIT)
    monkeypatch.setattr(list_uploads, "LOOK_COST", LOOK)
    node = GossipHarness(MemoryHub(), ALICE, MANIFEST, tmp_path)
    for message in CERTIFICATES:
        node.certificates.admit(message, node.now())
    return node


@asynccontextmanager
async def connected(alice: GossipHarness, *peers: MemoryTransport) -> AsyncIterator[None]:
    """Run a node and peers without one, which are connected to it."""
    async with trio.open_nursery() as nursery:
        for transport in (alice.transport, *peers):
            await nursery.start(transport.run)
        nursery.start_soon(alice.run)
        for peer in peers:
            await peer.connect(alice.address)
        yield
        nursery.cancel_scope.cancel()


async def certificates(peer: MemoryTransport, alice: GossipHarness, *wanted: Identity) -> tuple[bytes, ...]:
    asked = to_request([each.node for each in wanted]) if wanted else b""
    protocol = certificates_protocol(MANIFEST.swarm_id)
    answer = await peer.request(alice.peer_id, protocol, asked, max_response_bytes=MAX_ANSWER_BYTES)
    return parse_response(answer)


async def test_one_network_gets_four_lists_at_once_without_limiting_others(
    alice: GossipHarness, autojump_clock: MockClock
) -> None:
    hosts = {"mallory": "203.0.113.7", "mallory-2": "203.0.113.7", "bob": "198.51.100.9"}
    peers = {name: MemoryTransport(alice.hub, name, on_bug=_raise, host=host) for name, host in hosts.items()}
    async with connected(alice, *peers.values()):
        await trio.sleep(1)
        taken = 0
        for _ in range(SECONDS):
            for name in ("mallory", "mallory-2"):
                taken += sum(map(len, await certificates(peers[name], alice)))
            await trio.sleep(1)
        assert LIMIT.burst / 2 < taken <= LIMIT.burst + (SECONDS + 1) * LIMIT.per_second
        assert {*CERTIFICATES} < {*await certificates(peers["bob"], alice)}
        assert await certificates(peers["bob"], alice, MEMBERS[3]) == (CERTIFICATES[3],)


async def test_addresses_that_are_rented_together_get_four_networks_share(
    alice: GossipHarness, autojump_clock: MockClock
) -> None:
    names = [f"mallory-{number}" for number in range(1, 13)]
    peers = {
        name: MemoryTransport(alice.hub, name, on_bug=_raise, host=f"203.0.113.{number}")
        for number, name in enumerate(names, 1)
    }
    peers["bob"] = MemoryTransport(alice.hub, "bob", on_bug=_raise, host="203.0.114.1")
    async with connected(alice, *peers.values()):
        await trio.sleep(1)
        begin, taken = trio.current_time(), 0
        for name in (*names, *names, *names, *names):
            taken += sum(map(len, await certificates(peers[name], alice)))
        four = LIMIT.times(4)
        assert four.burst / 2 < taken <= four.burst + (trio.current_time() - begin + 1) * four.per_second
        assert {*CERTIFICATES} < {*await certificates(peers["bob"], alice)}


async def test_requests_over_a_limit_are_not_read(alice: GossipHarness, autojump_clock: MockClock) -> None:
    """Contributions are read from the disk to answer a request of no bytes."""
    mallory = MemoryTransport(alice.hub, "mallory", on_bug=_raise, host="203.0.113.7")
    read: list[str] = []

    def contributions() -> tuple[bytes, ...]:
        read.append("once")
        return (CERTIFICATES[0],)

    alice.gossip.open_contributions(contributions)
    protocol = contributions_protocol(MANIFEST.swarm_id)
    async with connected(alice, mallory):
        for _ in range(SECONDS):
            await mallory.request(alice.peer_id, protocol, b"", max_response_bytes=MAX_ANSWER_BYTES)
            await trio.sleep(1)
        assert len(read) <= (LIMIT.burst + SECONDS * LIMIT.per_second) / LOOK
        assert read


def test_the_limit_allows_four_full_responses() -> None:
    assert list_uploads.LISTS_TO_NETWORK.burst >= 4 * MAX_ANSWER_BYTES


def _raise(error: Exception) -> None:
    raise error
