"""A newcomer fetches an epoch's rollouts beside attackers of few networks that ask for all they can."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.listing_peer import by_id
from support.swarm import Identity, make_chain_manifest, moment
from trio.testing import MockClock

from sapo_client.node.gossip.catch_up_server import UPLOAD
from sapo_client.node.gossip.list_uploads import NETWORKS_OF_SITE
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_client.swarm.transport import TransportError
from sapo_protocol.islands.catch_up import (
    BUSY_SECONDS,
    MAX_FETCH_BYTES,
    MAX_FETCHED,
    to_fetch_request,
)
from sapo_protocol.manifest import Limits
from sapo_protocol.topics import rollouts_protocol

MANIFEST: Final = make_chain_manifest(
    epoch_seconds=3600, limits=Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=512)
)
SWARM: Final = MANIFEST.swarm_id
NEWCOMER, BOB, CAROL, DAVE = (Identity(number) for number in range(1, 5))
MISSED: Final = by_id(
    SWARM,
    [
        who.message(MANIFEST, slot=slot, completions=(b"5", b"7" * 4096))
        for who in (CAROL, DAVE)
        for slot in range(200)
    ],
)
SIZE_BYTES: Final = sum(map(len, MISSED.values()))
ASKED_PER_SECOND: Final = 4.0
"""A node answers five requests of a peer in a second."""


class OneServer:
    """Bob, who has everything, a newcomer that has nothing, and attackers that connected before it."""

    def __init__(self, root: Path, attackers: list[str]) -> None:
        self.hub = MemoryHub()
        self.bob = self._make(BOB, root, "192.0.2.1")
        self.newcomer = self._make(NEWCOMER, root, "198.51.100.1")
        for message in MISSED.values():
            self.bob.gossip.validate_rollout(message, "author")
        assert self.bob.envelopes.lacking(MISSED) == ()
        self.attackers = [
            MemoryTransport(self.hub, f"mallory{n}", on_bug=_raise, host=host)
            for n, host in enumerate(attackers)
        ]

    def _make(self, who: Identity, root: Path, host: str) -> GossipHarness:
        def now() -> float:
            return moment(MANIFEST)

        node = GossipHarness(
            self.hub, who, MANIFEST, root / str(who.number), clock=now, host=host, audit_share=0.0
        )
        for author in (NEWCOMER, CAROL, DAVE):
            node.certificates.admit(author.certificate(MANIFEST).to_bytes(), node.now())
        return node

    async def seconds_to_catch_up(self, most: float) -> float | None:
        """Return the seconds after which the newcomer had all rollouts; None if after `most` it had not."""
        async with trio.open_nursery() as nursery:
            for node in (self.bob, self.newcomer):
                await nursery.start(node.transport.run)
                nursery.start_soon(node.run)
            for attacker in self.attackers:
                await nursery.start(attacker.run)
                await attacker.connect(self.bob.address)
                nursery.start_soon(self._ask, attacker)
            await trio.sleep(60)  # the attackers use up what may be sent at once
            begun = trio.current_time()
            await self.newcomer.transport.connect(self.bob.address)
            while self.lacks() and trio.current_time() < begun + most:
                await trio.sleep(1)
            seconds = trio.current_time() - begun
            nursery.cancel_scope.cancel()
        return None if self.lacks() else seconds

    async def _ask(self, attacker: MemoryTransport) -> None:
        """Ask for rollouts as often as a node answers one peer."""
        request = to_fetch_request(tuple(MISSED)[:MAX_FETCHED])
        while True:
            try:
                await attacker.request(
                    self.bob.peer_id, rollouts_protocol(SWARM), request, max_response_bytes=MAX_FETCH_BYTES
                )
            except TransportError:
                return
            await trio.sleep(1 / ASKED_PER_SECOND)

    def lacks(self) -> int:
        return len(self.newcomer.envelopes.lacking(MISSED))


@pytest.mark.parametrize(
    ("hosts", "networks"),
    [
        ([f"203.{n}.113.7" for n in range(2)], 2),
        ([f"203.0.113.{n}" for n in range(1, 13)], NETWORKS_OF_SITE),
    ],
    ids=["two networks", "twelve addresses rented together"],
)
async def test_a_newcomer_gets_its_part_of_what_strangers_may_have(
    hosts: list[str], networks: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Of n networks that ask each gets an n-th; a newcomer beside two attackers got 30 % and then gave up."""
    swarm = OneServer(tmp_path, hosts)
    of_its_part = SIZE_BYTES * (networks + 1) / UPLOAD.per_second
    assert await swarm.seconds_to_catch_up(1.2 * of_its_part + 3 * BUSY_SECONDS) is not None


def _raise(error: Exception) -> None:
    raise error
