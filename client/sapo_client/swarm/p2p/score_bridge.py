"""Adapter that gives gossipsub our own peer scores.

Stock blames the forwarder for every message that a validator did not accept, whatever the reason, and
gives credit for time in the mesh. Here gossipsub's own terms have no weight: nothing that the library
counts changes a score, and its thresholds see exactly what our own table and the application's rating
of the peer say (the application-specific score of gossipsub 1.1).

Nor does the pace of control messages cost anything. Stock blames a peer for more than ten IHAVEs or IWANTs
in a second, and for a GRAFT within ten seconds of its PRUNE, by the time at which they arrive. After a stall
of its connection an honest peer's heartbeats of minutes arrive at once: it would be banned. What is above the
pace is not read (``mesh.py``), and floods of messages are the meter's business.
"""

from __future__ import annotations

import trio
from libp2p.peer.id import ID
from libp2p.pubsub.score import PeerScorer, ScoreParams

from sapo_client.swarm.discipline import Discipline


class ScoreBridge(PeerScorer):
    """The router's scorer."""

    def __init__(self, discipline: Discipline) -> None:
        super().__init__(ScoreParams())
        self._discipline = discipline

    def score(self, peer: ID, topics: list[str]) -> float:
        """Return our own score, the application's rating included."""
        return self._discipline.score(str(peer), trio.current_time())

    def allow_publish(self, peer: ID, topics: list[str]) -> bool:
        """Whether messages from or to the peer pass."""
        return self._discipline.allows(str(peer), trio.current_time())

    allow_gossip = allow_publish
    allow_px_from = allow_publish

    def is_graylisted(self, peer: ID, topics: list[str]) -> bool:
        """Whether control messages of the peer are refused."""
        return not self.allow_publish(peer, topics)

    def _no_effect(self, *_: object, **__: object) -> None:
        """Keep no state for terms without weight: stock's tables grow with every peer id seen."""

    penalize_graft_flood = _no_effect
    penalize_iwant_spam = _no_effect
    penalize_ihave_spam = _no_effect
    on_heartbeat = _no_effect
    on_join_mesh = _no_effect
    on_leave_mesh = _no_effect
    on_first_delivery = _no_effect
    on_mesh_delivery = _no_effect
    on_invalid_message = _no_effect
    penalize_behavior = _no_effect
    penalize_equivocation = _no_effect
    add_peer_ip = _no_effect
    remove_peer = _no_effect
