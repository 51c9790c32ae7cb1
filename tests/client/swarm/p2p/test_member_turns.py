"""Real transports: members of an island that a node publishes on take turns in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sapo_client.swarm.transport import FoundPeer

MEMBERS = 4
ISLAND = 7


async def test_each_member_has_its_turn(swarm: Any, tools: Any) -> None:
    nobody = replace(tools.QUICK_DIAL, target_peers=0)
    members = [await swarm.start(number, dial=nobody) for number in range(2, 2 + MEMBERS)]
    dial = replace(
        tools.QUICK_DIAL, sought_on_island=2, sought_peers=2, usual_beside_sought=0, turn_seconds=0.2
    )
    author = await swarm.start(1, dial=replace(dial, gave_way_seconds=0.3))
    host = "127.0.0.1"
    found = [
        FoundPeer(each.peer_id, each.transport.addresses, host, frozenset({ISLAND}), host) for each in members
    ]
    author.transport.seek(found)
    await tools.eventually(lambda: len(author.peer_ids()) == 2)
    first = author.peer_ids()
    met = set(first)

    def has_met_all() -> bool:
        author.transport.seek(found, own={ISLAND})
        met.update(author.peer_ids())
        return len(met) == MEMBERS

    await tools.eventually(has_met_all)
    assert len(first & author.peer_ids()) >= 1
