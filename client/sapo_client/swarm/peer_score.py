"""Score of each peer's behaviour on the wire. Pure; the clock is passed in.

A score starts at zero and only falls: by a fault's severity, down to a floor. It recovers by
half-life: a single mistake is forgotten, repeated faults are not. It does not measure the usefulness of a
peer (that is reputation, kept per account, which `Discipline` adds), is never shared with others, and
is kept after a disconnection: a peer that reconnects has the same score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from sapo_client.swarm.limits import ScoreLimits


class Severity(Enum):
    """Cost of one fault, named by how many of them are tolerated (as in Lighthouse)."""

    FATAL = -100.0  # one is enough for a ban
    LOW = -10.0  # low tolerance: five in a row are a ban
    MID = -5.0  # ten
    HIGH = -1.0  # fifty


class PeerStanding(Enum):
    """Status of a peer, derived from its score."""

    GOOD = "good"
    DISCONNECTED = "disconnected"
    BANNED = "banned"


@dataclass(frozen=True, slots=True)
class _Record:
    score: float
    updated_seconds: float
    banned_until_seconds: float


class PeerScores:
    """Bounded table of scores by peer id."""

    def __init__(self, limits: ScoreLimits | None = None) -> None:
        self._limits = limits or ScoreLimits()
        self._records: dict[str, _Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def penalise(self, peer_id: str, severity: Severity, now_seconds: float) -> PeerStanding:
        """Lower the peer's score by one fault and return its new standing."""
        record = self._current(peer_id, now_seconds)
        score = max(self._limits.floor, record.score + severity.value)
        record = replace(record, score=score)
        if score <= self._limits.ban_below:
            record = replace(record, banned_until_seconds=now_seconds + self._limits.ban_seconds)
        self._records[peer_id] = record
        self._bound(now_seconds)
        return self._standing(record, now_seconds)

    def score(self, peer_id: str, now_seconds: float) -> float:
        """Return the peer's score: zero or less."""
        return self._current(peer_id, now_seconds).score

    def standing(self, peer_id: str, now_seconds: float) -> PeerStanding:
        """Return whether the peer is accepted, disconnected or banned now."""
        return self._standing(self._current(peer_id, now_seconds), now_seconds)

    def _standing(self, record: _Record, now_seconds: float) -> PeerStanding:
        if now_seconds < record.banned_until_seconds:
            return PeerStanding.BANNED
        return (
            PeerStanding.DISCONNECTED if record.score <= self._limits.disconnect_below else PeerStanding.GOOD
        )

    def _current(self, peer_id: str, now_seconds: float) -> _Record:
        record = self._records.get(peer_id)
        if record is None:
            return _Record(score=0.0, updated_seconds=now_seconds, banned_until_seconds=-float("inf"))
        elapsed_seconds = now_seconds - record.updated_seconds
        if elapsed_seconds <= 0:  # a clock that steps back does not raise the score
            return record
        decay = 0.5 ** (elapsed_seconds / self._limits.half_life_seconds)
        return replace(record, score=record.score * decay, updated_seconds=now_seconds)

    def _bound(self, now_seconds: float) -> None:
        """Drop the quarter with the best scores when the table is full, so that new ids cannot displace a
        ban."""
        if len(self._records) <= self._limits.max_peers:
            return
        by_harm = sorted(self._records, key=lambda peer_id: self._harm(peer_id, now_seconds))
        for peer_id in by_harm[: max(1, self._limits.max_peers // 4)]:
            del self._records[peer_id]

    def _harm(self, peer_id: str, now_seconds: float) -> tuple[float, float]:
        record = self._current(peer_id, now_seconds)
        return max(record.banned_until_seconds, now_seconds), -record.score
