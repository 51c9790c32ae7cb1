"""Real libp2p nodes on loopback: one that joins late catches up from an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from support.gossip_harness import GossipHarness
from support.listing_peer import by_id
from support.nodes import until
from support.swarm import Identity, make_manifest

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.islands.catch_up import MAX_FETCHED

MANIFEST = make_manifest()
AUTHORS = (Identity(3), Identity(4))
PATIENCE_SECONDS = 120.0
MISSED = by_id(
    MANIFEST.swarm_id, [who.message(MANIFEST, slot=slot) for who in AUTHORS for slot in range(MAX_FETCHED)]
)


@dataclass
class LoopbackNode(GossipHarness):
    """A node's gossip and engine over libp2p on loopback."""

    bootstrap: tuple[str, ...] = ()

    def open_transport(self) -> Any:
        """Return a transport that dials its bootstrap peers."""
        from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

        return Libp2pTransport(self.identity.seed, on_bug=self.supervisor.note_bug, bootstrap=self.bootstrap)


def make(number: int, root: Path, bootstrap: tuple[str, ...] = ()) -> LoopbackNode:
    return LoopbackNode(MemoryHub(), Identity(number), MANIFEST, root / f"{number}", bootstrap=bootstrap)


async def start(nursery: trio.Nursery, node: LoopbackNode) -> None:
    await nursery.start(node.transport.run)
    nursery.start_soon(node.run)


async def test_a_node_that_joins_late_fetches_all_earlier_rollouts(tmp_path: Path) -> None:
    """More than one request has room for; both authors have left, and the late node has never met them."""
    alice = make(1, tmp_path)
    for author in AUTHORS:
        alice.certificates.admit(author.certificate(MANIFEST).to_bytes(), alice.now())
    for message in MISSED.values():
        alice.gossip.validate_rollout(message, "author")
    async with trio.open_nursery() as nursery:
        await start(nursery, alice)
        bob = make(2, tmp_path, alice.transport.addresses)
        await start(nursery, bob)
        await until(lambda: bob.events("caught_up"), PATIENCE_SECONDS)
        assert {peer.score for peer in (*alice.transport.peers(), *bob.transport.peers())} == {0.0}
        nursery.cancel_scope.cancel()
    assert {each: bob.envelopes.envelope(each) for each in MISSED} == MISSED
    [caught_up] = bob.events("caught_up")
    told = (caught_up["peer_id"], caught_up["listed"], caught_up["brought"], caught_up["faults"])
    assert told == (alice.peer_id, len(MISSED), len(MISSED), 0)
    assert bob.events("refused", "service_failed") == []
