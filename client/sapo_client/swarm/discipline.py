"""Applies faults to peer scores, and disconnects peers whose score falls below the threshold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.limits import ScoreLimits
from sapo_client.swarm.peer_score import PeerScores, PeerStanding, Severity


class Discipline:
    """Scores of all peers; `disconnect` is called with the id of a peer below the threshold."""

    def __init__(
        self,
        scores: PeerScores,
        counters: TransportCounters,
        disconnect: Callable[[str], None],
        limits: ScoreLimits | None = None,
    ) -> None:
        self.scores = scores
        self._counters = counters
        self._disconnect = disconnect
        self._limits = limits or ScoreLimits()
        self._ratings: Mapping[str, float] = {}
        self._floods: Counter[str] = Counter()

    def blame(self, peer_id: str, severity: Severity, now_seconds: float) -> None:
        """Count one fault against a peer."""
        before = self.scores.standing(peer_id, now_seconds)
        standing = self.scores.penalise(peer_id, severity, now_seconds)
        if standing is PeerStanding.BANNED and before is not PeerStanding.BANNED:
            self._counters.bans += 1
        if not self.allows(peer_id, now_seconds):
            self._disconnect(peer_id)

    def note_flood(self, peer_id: str, now_seconds: float, *, proven: bool = True) -> None:
        """Count one time that a peer exceeded its rate.

        Args:
            proven: whether no honest relay can exceed the rate; otherwise there is no penalty.
        """
        self._counters.flood_pauses += 1
        self._floods[peer_id] += 1
        if proven:
            self.blame(peer_id, Severity.HIGH, now_seconds)

    def take_floods(self) -> Mapping[str, int]:
        """Return the number of floods by peer id since the last call."""
        taken, self._floods = self._floods, Counter()
        return taken

    def rate(self, ratings: Mapping[str, float], now_seconds: float) -> None:
        """Replace the application's ratings of peers; a peer that is not named has a rating of zero."""
        low, high = self._limits.lowest_rating, self._limits.highest_rating
        self._ratings = {peer_id: min(high, max(low, rating)) for peer_id, rating in ratings.items()}
        for peer_id in self._ratings:
            if not self.allows(peer_id, now_seconds):
                self._disconnect(peer_id)

    def score(self, peer_id: str, now_seconds: float) -> float:
        """Return the sum of the peer's score and the application's rating."""
        return self.scores.score(peer_id, now_seconds) + self._ratings.get(peer_id, 0.0)

    def allows(self, peer_id: str, now_seconds: float) -> bool:
        """Whether a connection with this peer is allowed; a good rating does not lift a ban."""
        if self.scores.standing(peer_id, now_seconds) is not PeerStanding.GOOD:
            return False
        return self.score(peer_id, now_seconds) > self._limits.disconnect_below
