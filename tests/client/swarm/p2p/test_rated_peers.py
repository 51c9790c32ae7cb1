"""The application's rating in gossipsub's own score questions."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from libp2p.peer.id import ID
from trio.testing import MockClock

from sapo_client.swarm.limits import ScoreLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.peer_score import Severity

LIMITS = ScoreLimits()
PEERS = [ID.from_base58(peer_id_from_key(bytes([number]) * 32)) for number in range(1, 9)]
PEER, LIKED, DISLIKED, *OTHERS = PEERS


def _blame(transport: Any, peer: ID) -> None:
    transport._discipline.blame(str(peer), Severity.HIGH, trio.current_time())


@pytest.fixture
def transport(make_transport: Any) -> Any:
    return make_transport()


async def test_the_score_is_behaviour_and_rating_together(
    transport: Any, tools: Any, autojump_clock: MockClock
) -> None:
    def scores() -> list[float]:
        return [transport._mesh.scorer.score(peer, [tools.TOPIC]) for peer in (PEER, LIKED, DISLIKED)]

    transport.rate({str(LIKED): 3.0, str(DISLIKED): -12.0})
    assert scores() == [0.0, 3.0, -12.0]
    for peer in PEERS:
        _blame(transport, peer)
    assert scores() == [-1.0, 2.0, -13.0]
    transport.rate({})
    assert scores() == [-1.0, -1.0, -1.0]


@pytest.mark.parametrize("rating", [-1e9, LIMITS.lowest_rating, 0.0, 1e9])
async def test_no_rating_alone_graylists_a_peer(transport: Any, tools: Any, rating: float) -> None:
    scorer = transport._mesh.scorer
    transport.rate({str(DISLIKED): rating})
    for peer in (DISLIKED, PEER):
        assert not scorer.is_graylisted(peer, [tools.TOPIC])
        assert scorer.allow_publish(peer, [tools.TOPIC])
        assert scorer.allow_gossip(peer, [tools.TOPIC])


async def test_further_faults_graylist_only_the_badly_rated_peer(transport: Any, tools: Any) -> None:
    scorer = transport._mesh.scorer
    transport.rate({str(DISLIKED): LIMITS.lowest_rating})
    for peer in (DISLIKED, PEER):
        for _ in range(6):
            _blame(transport, peer)
    assert [scorer.is_graylisted(peer, [tools.TOPIC]) for peer in (DISLIKED, PEER)] == [True, False]


async def test_a_full_mesh_keeps_highly_rated_peers(transport: Any, tools: Any) -> None:
    mesh = transport._mesh
    transport.rate({str(LIKED): 5.0, str(DISLIKED): -15.0})
    mesh.mesh[tools.TOPIC] = set(PEERS)
    pruned = mesh._select_peers_for_pruning(tools.TOPIC, 1)
    assert pruned == [DISLIKED]
    assert LIKED not in mesh._select_peers_for_pruning(tools.TOPIC, len(PEERS) - 1)
