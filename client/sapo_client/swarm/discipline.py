"""From a fault to its consequence: the score falls, and a peer below the line is let go."""

from __future__ import annotations

from collections.abc import Callable

from sapo_client.swarm.counters import Counters
from sapo_client.swarm.peer_score import PeerScores, Severity, Standing


class Discipline:
    """Scores of all peers, and `expel`, called with the id of a peer that fell below the line."""

    def __init__(self, scores: PeerScores, counters: Counters, expel: Callable[[str], None]) -> None:
        self.scores = scores
        self._counters = counters
        self._expel = expel

    def blame(self, peer_id: str, severity: Severity, now_seconds: float) -> None:
        """Count one fault against a peer."""
        before = self.scores.standing(peer_id, now_seconds)
        standing = self.scores.penalise(peer_id, severity, now_seconds)
        if standing is Standing.GOOD:
            return
        if standing is Standing.BANNED and before is not Standing.BANNED:
            self._counters.bans += 1
        self._expel(peer_id)

    def allows(self, peer_id: str, now_seconds: float) -> bool:
        """Whether we keep or open a connection with this peer."""
        return self.scores.standing(peer_id, now_seconds) is Standing.GOOD
