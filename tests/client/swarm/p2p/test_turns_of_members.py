"""Real transports: a node keeps to its places for members, and one of them is taken in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sapo_client.swarm.transport import Direction, FoundPeer

MEMBERS = 8
ISLAND = 7
HOST = "127.0.0.1"
PLACES = 2


def chosen_by(node: Any) -> set[str]:
    """Return the peers to which a node opened a connection."""
    return {peer.peer_id for peer in node.transport.peers() if peer.direction is Direction.OUTBOUND}


async def test_every_member_has_its_turn_in_one_of_two_places(swarm: Any, tools: Any) -> None:
    """The other place keeps its member. At no time more than two are connected."""
    passive = replace(tools.QUICK_DIAL, target_peers=0, sought_peers=0)
    members = [await swarm.start(number, dial=passive) for number in range(2, 2 + MEMBERS)]
    dial = replace(
        passive, sought_on_island=PLACES, sought_peers=PLACES, turn_seconds=0.3, opening_seconds=60.0
    )
    author = await swarm.start(1, dial=replace(dial, gave_way_seconds=0.6))
    found = [
        FoundPeer(each.peer_id, each.transport.addresses, HOST, frozenset({ISLAND}), HOST) for each in members
    ]
    author.transport.seek(found)
    await tools.eventually(lambda: len(author.peer_ids()) == PLACES)
    first = author.peer_ids()
    met, most = set(first), 0

    def has_met_all() -> bool:
        nonlocal most
        author.transport.seek(found, own={ISLAND})
        met.update(author.peer_ids())
        most = max(most, len(author.peer_ids()))
        return len(met) == MEMBERS

    await tools.eventually(has_met_all)
    assert most == PLACES
    assert len(first & author.peer_ids()) == 1
    assert all(chosen_by(member) == set() for member in members)
    assert {member.transport.score(author.peer_id) for member in members} == {0.0}
