"""Real libp2p nodes on loopback find the members of their islands by address records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
import trio
from support.gossip_harness import GossipHarness
from support.swarm import Identity, make_manifest

from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.relays import PROVING_MESSAGES
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.epochs import epoch_at
from sapo_protocol.terms.islands import IslandTerms
from sapo_verification.islands import IslandMap

SIXTEEN = make_manifest(
    version=2,
    islands=IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=16, count=16),
)
LONERS = DialLimits(
    target_peers=1,  # the bootstrap peer: all other peers are dialled because of a record
    first_backoff_seconds=0.05,
    max_backoff_seconds=0.5,
    tick_seconds=0.05,
    first_exchange_seconds=0.1,
    max_exchange_seconds=1.0,
)
PATIENCE_SECONDS = 60.0


@dataclass
class RealNode(GossipHarness):
    """A node's gossip and engine over libp2p on loopback."""

    bootstrap: tuple[str, ...] = ()
    dial: DialLimits = LONERS

    def open_transport(self) -> Any:
        """Return a transport that dials its bootstrap peer, and others by record alone."""
        from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

        return Libp2pTransport(
            self.identity.seed, on_bug=self.supervisor.note_bug, bootstrap=self.bootstrap, dial=self.dial
        )

    def connected(self) -> set[str]:
        """Return the ids of its peers."""
        return {peer.peer_id for peer in self.transport.peers()}


@dataclass
class OldNode(RealNode):
    """A node of before address records: it neither serves them nor asks for any."""

    def __post_init__(self) -> None:
        super().__post_init__()
        records: Any = self.gossip.records
        records.run = trio.sleep_forever


@dataclass
class SilentNode(RealNode):
    """An attacker's node: it takes every message, and forwards, announces and hands out none."""

    def open_transport(self) -> Any:
        """Return a transport that keeps what others send to itself."""
        transport = super().open_transport()
        forward = transport._mesh.forward
        transport._mesh.forward = lambda message, came_from: (
            0 if came_from is not None else forward(message, came_from)
        )
        return transport


def choose(islands: IslandMap, now_seconds: float) -> tuple[Identity, Identity, Identity, Identity]:
    """Return a bootstrap node, a member of an island, one who seeks it, and a stranger to all of them.

    Member and seeker live on islands that the other carries: so they take each other's certificates.
    """
    people = [Identity(number) for number in range(1, 60)]
    due = {who: islands.due(who.node, who.account, now_seconds) for who in people}
    homes = {who: islands.home(who.account, epoch_at(SIXTEEN, now_seconds)) for who in people}
    for member, seeker in permutations(people, 2):
        if homes[member] in due[seeker] and homes[seeker] in due[member]:
            apart = [who for who in people if not due[who] & (due[seeker] | due[member])]
            for boot, stranger in combinations(apart, 2):
                if not due[boot] & due[stranger]:
                    return boot, member, seeker, stranger
    raise AssertionError("nobody fits")


async def until(condition: Any) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.sleep(0.02)


@asynccontextmanager
async def running(nodes: Sequence[RealNode]) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery
        for node in nodes:
            assert {peer.score for peer in node.transport.peers()} <= {0.0}
            assert node.events("service_failed") == []
        nursery.cancel_scope.cancel()


async def start(nursery: trio.Nursery, node: RealNode) -> None:
    await nursery.start(node.transport.run)
    nursery.start_soon(node.run)


def make(
    kind: type[RealNode],
    who: Identity,
    root: Path,
    bootstrap: tuple[str, ...] = (),
    dial: DialLimits = LONERS,
) -> RealNode:
    return kind(MemoryHub(1), who, SIXTEEN, root / f"{who.number}", bootstrap=bootstrap, dial=dial)


@pytest.mark.parametrize("kind", [RealNode, OldNode])
async def test_a_node_whose_only_bootstrap_peer_is_on_another_island_finds_its_member(
    kind: type[RealNode], tmp_path: Path
) -> None:
    """Over a bootstrap peer of before the records nobody is found, and nobody is blamed."""
    scout = make(RealNode, Identity(1), tmp_path / "scout")
    await scout.beacons.recall(epoch_at(SIXTEEN, scout.now()) + 1)
    boot_who, member_who, seeker_who, stranger_who = choose(scout.engine.islands, scout.now())
    boot = make(kind, boot_who, tmp_path)
    nodes = [boot]
    async with running(nodes) as nursery:
        await start(nursery, boot)
        later = (member_who, stranger_who, seeker_who)
        nodes += [make(RealNode, who, tmp_path, boot.transport.addresses) for who in later]
        _, member, stranger, seeker = nodes
        for node in (member, stranger):
            await start(nursery, node)
        told = 2 if kind is RealNode else 0
        await until(lambda: len(boot.gossip.records.directory) == told and len(boot.connected()) == 2)
        await start(nursery, seeker)
        if kind is OldNode:
            await until(lambda: len(boot.connected()) == 3 and seeker.events("peer_connected"))
            assert seeker.connected() == {boot.peer_id}
            return
        await until(lambda: seeker.connected() == {boot.peer_id, member.peer_id})
        assert stranger.connected() == {boot.peer_id}
        await until(lambda: seeker.knows(member) and member.knows(seeker))


async def test_a_node_that_starts_again_finds_members_without_its_bootstrap_peer(tmp_path: Path) -> None:
    """Their records were kept, with their signatures; no other file names them."""
    scout = make(RealNode, Identity(1), tmp_path / "scout")
    await scout.beacons.recall(epoch_at(SIXTEEN, scout.now()) + 1)
    boot_who, member_who, seeker_who, _ = choose(scout.engine.islands, scout.now())
    boot = make(RealNode, boot_who, tmp_path)
    nodes = [boot]
    async with running(nodes) as nursery:
        await start(nursery, boot)
        nodes += [make(RealNode, who, tmp_path, boot.transport.addresses) for who in (member_who, seeker_who)]
        _, member, seeker = nodes
        await start(nursery, member)
        await until(lambda: len(boot.gossip.records.directory) == 1)
        async with trio.open_nursery() as life:
            await start(life, seeker)
            await until(lambda: member.peer_id in seeker.connected())
            life.cancel_scope.cancel()
        assert seeker.connected() == set()
        again = make(RealNode, seeker_who, tmp_path)
        nodes.append(again)
        await start(nursery, again)
        await until(lambda: again.connected() == {member.peer_id})


def choose_neighbours(
    islands: IslandMap, now_seconds: float
) -> tuple[Identity, Identity, Identity, Identity]:
    """Return a bootstrap node, an author, and two who hear the author's home; the first one hears it not."""
    people = [Identity(number) for number in range(1, 80)]
    due = {who: islands.due(who.node, who.account, now_seconds) for who in people}
    for author in people:
        home = islands.home(author.account, epoch_at(SIXTEEN, now_seconds))
        there = [who for who in people if home in due[who] and who is not author]
        apart = [who for who in people if not due[who] & due[author]]
        if len(there) >= 2 and apart:
            return apart[0], author, there[0], there[1]
    raise AssertionError("nobody fits")


async def test_an_author_whose_only_member_forwards_nothing_finds_another_member(
    tmp_path: Path,
) -> None:
    """It has one place for members. The silent one has it first, loses it for bringing nothing, unblamed."""
    scout = make(RealNode, Identity(1), tmp_path / "scout")
    await scout.beacons.recall(epoch_at(SIXTEEN, scout.now()) + 1)
    boot_who, author_who, silent_who, member_who = choose_neighbours(scout.engine.islands, scout.now())
    boot = make(RealNode, boot_who, tmp_path)
    nodes = [boot]
    async with running(nodes) as nursery:
        await start(nursery, boot)
        addresses = boot.transport.addresses
        passive, one_place = replace(LONERS, sought_peers=0), replace(LONERS, sought_peers=1)
        silent = make(SilentNode, silent_who, tmp_path, addresses, passive)
        member = make(RealNode, member_who, tmp_path, addresses, passive)
        author = make(RealNode, author_who, tmp_path, addresses, one_place)
        nodes += [silent, author]
        await start(nursery, silent)
        await until(lambda: len(boot.gossip.records.directory) == 1)
        await start(nursery, author)
        await until(lambda: author.connected() == {boot.peer_id, silent.peer_id} and silent.knows(author))
        nodes.append(member)
        await start(nursery, member)
        await until(lambda: len(boot.gossip.records.directory) == 3)
        for slot in range(PROVING_MESSAGES):
            await author.publish(slot=slot)
        with trio.fail_after(PATIENCE_SECONDS):
            while member.peer_id not in author.connected():
                slot += 1
                await author.publish(slot=slot)
                await trio.sleep(2.0)  # an epoch has 32 slots
        await until(lambda: member.knows(author))
        last = await author.publish(slot=slot + 1)
        await until(lambda: bytes(last.content_id) in member.pooled())
        assert silent.peer_id not in author.connected()
