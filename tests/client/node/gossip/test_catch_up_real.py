"""Real libp2p nodes on loopback: one that joins late catches up from those that were there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import Identity, make_manifest

from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.catch_up import MAX_FETCHED

MANIFEST = make_manifest()
PATIENCE_SECONDS = 120.0


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


async def test_who_joins_late_fetches_everything_that_was_published_before(tmp_path: Path) -> None:
    """More than one request has room for, by two authors, one of whom has left."""
    alice = make(1, tmp_path)
    sent: list[ContentId] = []
    async with trio.open_nursery() as nursery:
        await start(nursery, alice)
        bob = make(2, tmp_path, alice.transport.addresses)
        async with trio.open_nursery() as life:
            await start(life, bob)
            await until(lambda: alice.knows(bob) and bob.knows(alice), PATIENCE_SECONDS)
            for slot in range(MAX_FETCHED * 2 // 3):
                sent += [(await author.publish(slot=slot)).content_id for author in (alice, bob)]
            await until(lambda: not alice.envelopes.lacking(sent), PATIENCE_SECONDS)
            life.cancel_scope.cancel()
        carol = make(3, tmp_path, alice.transport.addresses)
        await start(nursery, carol)
        await until(lambda: carol.events("caught_up"), PATIENCE_SECONDS)
        assert not carol.envelopes.lacking(sent)
        [caught_up] = carol.events("caught_up")
        told = (caught_up["peer_id"], caught_up["listed"], caught_up["brought"], caught_up["faults"])
        assert told == (alice.peer_id, len(sent), len(sent), 0)
        assert {peer.score for peer in (*carol.transport.peers(), *alice.transport.peers())} == {0.0}
        assert carol.events("refused", "service_failed") == []
        nursery.cancel_scope.cancel()
    assert len(sent) > MAX_FETCHED
