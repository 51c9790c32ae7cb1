"""An auditor that was away fetches an epoch's rollouts beside forty peers that ask for as much as they can.

An account is paid what auditors have heard of it before they tally, so an auditor that is put off like
anybody misses the epoch: pay of honest accounts needs most of the auditors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from support.gossip_harness import GossipHarness
from support.listing_peer import by_id
from support.swarm import EPOCH, Identity, make_chain_manifest, moment
from trio.testing import MockClock

from sapo_client.node.gossip.catch_up_server import UPLOAD_TO_AUDITOR
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_client.swarm.transport import TransportError
from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.catch_up import MAX_FETCH_BYTES, MAX_FETCHED, IdRequest, to_fetch_request
from sapo_protocol.manifest import Limits
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.topics import rollout_ids_protocol, rollouts_protocol

MANIFEST = make_chain_manifest(
    epoch_seconds=3600, limits=Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=512)
)
SWARM = MANIFEST.swarm_id
AUDITOR, BOB, CAROL, DAVE = (Identity(number) for number in range(1, 5))
TEXT: Final = (b"5", b"7" * 4096)
MISSED: Final = by_id(
    SWARM,
    [who.message(MANIFEST, slot=slot, completions=TEXT) for who in (CAROL, DAVE) for slot in range(500)],
)
SIZE_BYTES: Final = sum(map(len, MISSED.values()))
ATTACKERS: Final = 40
"""As many strangers as a node lets connect."""

ASKED_PER_SECOND: Final = 2.0


class FloodedPeer:
    """Bob, who has everything, an auditor that has nothing, and strangers of forty networks."""

    def __init__(self, root: Path) -> None:
        self.hub = MemoryHub()
        self.bob = self._make(BOB, root, "192.0.2.1")
        self.auditor = self._make(AUDITOR, root, "198.51.100.1")
        self.bob.engine.set_auditors(Auditors((AUDITOR.account,)))
        for message in MISSED.values():
            self.bob.gossip.validate_rollout(message, "author")
        assert self.bob.envelopes.lacking(MISSED) == ()
        self.strangers = [
            MemoryTransport(self.hub, f"mallory{n}", on_bug=_raise, host=f"203.{n}.113.7")
            for n in range(ATTACKERS)
        ]

    def _make(self, who: Identity, root: Path, host: str) -> GossipHarness:
        def now() -> float:
            return moment(MANIFEST)

        folder = root / str(who.number)
        node = GossipHarness(self.hub, who, MANIFEST, folder, clock=now, host=host, audit_share=0.0)
        for author in (AUDITOR, CAROL, DAVE):
            node.certificates.admit(author.certificate(MANIFEST).to_bytes(), node.now())
        return node

    @asynccontextmanager
    async def running(self, *, seconds_before: float = 5.0) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            for node in (self.bob, self.auditor):
                await nursery.start(node.transport.run)
                nursery.start_soon(node.run)
            for stranger in self.strangers:
                await nursery.start(stranger.run)
                await stranger.connect(self.bob.address)
                nursery.start_soon(self._ask, stranger)
            await trio.sleep(seconds_before)
            await self.auditor.transport.connect(self.bob.address)
            yield
            nursery.cancel_scope.cancel()

    async def _ask(self, stranger: MemoryTransport) -> None:
        """Ask for the newest list and rollouts, in turns, as often as a node answers one peer."""
        ids = tuple(MISSED)[:MAX_FETCHED]
        asked = [
            (rollout_ids_protocol(SWARM), IdRequest(EPOCH).to_bytes()),
            (rollouts_protocol(SWARM), to_fetch_request(ids)),
        ]
        await trio.sleep(int(stranger.peer_id.removeprefix("mallory")) / ATTACKERS / ASKED_PER_SECOND)
        while True:
            for protocol, request in asked:
                try:
                    await stranger.request(
                        self.bob.peer_id, protocol, request, max_response_bytes=MAX_FETCH_BYTES
                    )
                except TransportError:
                    return
                await trio.sleep(1 / ASKED_PER_SECOND)

    def lacks(self) -> int:
        return len(self.auditor.envelopes.lacking(MISSED))


async def test_forty_strangers_put_no_auditor_off(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Half a minute suffices for its thousand rollouts; it had none of them after a minute."""
    swarm = FloodedPeer(tmp_path)
    async with swarm.running():
        await trio.sleep(30)
        assert swarm.lacks() == 0


async def test_an_auditor_that_asks_for_too_much_is_put_off(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An auditor may be an attacker as well: it has a limit of its own."""
    swarm = FloodedPeer(tmp_path)
    bob = swarm.bob
    swarm.strangers.clear()
    async with swarm.running():
        begun, size_bytes = trio.current_time(), 0
        request = to_fetch_request(tuple(ContentId(each) for each in MISSED)[:MAX_FETCHED])
        while trio.current_time() < begun + 30:
            answer = await swarm.auditor.transport.request(
                bob.peer_id, rollouts_protocol(SWARM), request, max_response_bytes=MAX_FETCH_BYTES
            )
            size_bytes += len(answer)
            await trio.sleep(0.05)
        left = swarm.lacks() * SIZE_BYTES / len(MISSED)
    most = UPLOAD_TO_AUDITOR.burst + 36 * UPLOAD_TO_AUDITOR.per_second
    assert UPLOAD_TO_AUDITOR.burst < size_bytes + SIZE_BYTES - left <= most


def _raise(error: Exception) -> None:
    raise error
