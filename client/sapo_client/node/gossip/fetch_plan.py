"""Assignment of missing rollouts to the peers that list them. No I/O.

Each rollout is fetched from one peer at a time, and from another one as well if it has not arrived after some
seconds, so that a slow peer delays nothing for long. Rollouts that few peers list are fetched first: the only
peer with a rollout may disconnect, and ids that do not exist are then asked only of the peers that list them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sapo_protocol.identifiers import ContentId
from sapo_protocol.islands.catch_up import MAX_FETCHED

PATIENCE_SECONDS: Final = 3.0
"""Time until another peer is asked as well; less than the transport's time-out, more than a round trip."""


@dataclass(slots=True)
class _Lacking:
    listers: set[str] = field(default_factory=set)
    asked: str | None = None
    asked_seconds: float = 0.0


class FetchPlan:
    """Missing rollouts by content id, and the peers that list them."""

    def __init__(self) -> None:
        self._lacking: dict[ContentId, _Lacking] = {}
        self._listed: dict[str, dict[ContentId, None]] = {}

    def __len__(self) -> int:
        return len(self._lacking)

    def __contains__(self, content_id: object) -> bool:
        return content_id in self._lacking

    def add(self, peer_id: str, ids: Iterable[ContentId]) -> None:
        """Record that a peer lists rollouts that this node lacks."""
        listed = self._listed.setdefault(peer_id, {})
        for content_id in ids:
            self._lacking.setdefault(content_id, _Lacking()).listers.add(peer_id)
            listed[content_id] = None

    def has(self, peer_id: str) -> bool:
        """Whether the peer lists a rollout that is still missing."""
        return bool(self._listed.get(peer_id))

    def has_free(self, peer_id: str, now_seconds: float) -> bool:
        """Whether ``take`` would return anything for the peer now."""
        return any(self._is_free(each, now_seconds) for each in self._listed.get(peer_id, ()))

    def take(self, peer_id: str, now_seconds: float) -> tuple[ContentId, ...]:
        """Return the ids to request from the peer now; no other peer is asked for them for
        ``PATIENCE_SECONDS``."""
        free = [each for each in self._listed.get(peer_id, ()) if self._is_free(each, now_seconds)]
        taken = sorted(free, key=lambda each: len(self._lacking[each].listers))[:MAX_FETCHED]
        for content_id in taken:
            lacking = self._lacking[content_id]
            lacking.asked, lacking.asked_seconds = peer_id, now_seconds
        return tuple(taken)

    def release(self, peer_id: str, ids: Iterable[ContentId]) -> None:
        """Allow requests of these ids to any peer again, this one included."""
        for content_id in ids:
            lacking = self._lacking.get(content_id)
            if lacking is not None and lacking.asked == peer_id:
                lacking.asked = None

    def decided(self, content_id: ContentId) -> None:
        """Remove a rollout: it is here, or every copy of it would be refused."""
        lacking = self._lacking.pop(content_id, None)
        for peer_id in lacking.listers if lacking else ():
            del self._listed[peer_id][content_id]

    def missed(self, peer_id: str, content_id: ContentId) -> None:
        """Do not ask this peer for a rollout any more."""
        if content_id not in self._listed.get(peer_id, ()):
            return
        del self._listed[peer_id][content_id]
        listers = self._lacking[content_id].listers
        listers.discard(peer_id)
        if not listers:
            del self._lacking[content_id]

    def forget(self, peer_id: str) -> None:
        """Remove a peer."""
        ids = tuple(self._listed.get(peer_id, ()))
        self.release(peer_id, ids)
        for content_id in ids:
            self.missed(peer_id, content_id)
        self._listed.pop(peer_id, None)

    def _is_free(self, content_id: ContentId, now_seconds: float) -> bool:
        lacking = self._lacking[content_id]
        return lacking.asked is None or now_seconds - lacking.asked_seconds >= PATIENCE_SECONDS
