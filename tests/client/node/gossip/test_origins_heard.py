"""Networks of authors: learned only from a peer that sends its own rollout."""

from __future__ import annotations

from pathlib import Path

import trio
from support.gossip_harness import GossipHarness
from support.nodes import until
from support.swarm import Identity, make_manifest

from sapo_client.swarm.simulated.memory import MemoryHub

HOSTS = {1: "127.0.0.1", 2: "9.9.9.9", 3: "8.8.8.8"}


async def test_an_author_shows_its_network_by_handing_over_its_own_rollout(tmp_path: Path) -> None:
    """Three in a row: the middle one gets rollouts from their authors, the ends through the middle one."""
    hub, manifest = MemoryHub(), make_manifest()
    left, middle, right = people = [
        GossipHarness(hub, Identity(number), manifest, tmp_path / f"{number}", host=host)
        for number, host in HOSTS.items()
    ]
    async with trio.open_nursery() as nursery:
        for node in people:
            await nursery.start(node.transport.run)
            nursery.start_soon(node.run)
        await left.transport.connect(middle.address)
        await right.transport.connect(middle.address)
        await until(lambda: all(middle.knows(end) and end.knows(middle) for end in (left, right)))
        for node in people:  # a stranger's first rollout makes its hearer ask for its certificate
            await node.publish(slot=0)
        await until(lambda: left.knows(right) and right.knows(left))
        for node in people:
            await node.publish(slot=1)
        await until(lambda: all(_authors(node) == 2 for node in people))
        nursery.cancel_scope.cancel()
    accounts = [node.identity.account for node in people]
    known = [[node.origins.network_of(account) for account in accounts] for node in people]
    assert known == [
        [None, "9.9.9.0/24", None],  # right's rollout came through the middle
        [None, None, "8.8.8.0/24"],  # left is on a private address
        [None, "9.9.9.0/24", None],
    ]


def _authors(node: GossipHarness) -> int:
    return len({event["account"] for event in node.events("admitted")})
