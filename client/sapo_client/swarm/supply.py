"""Deliveries of a topic's messages by peer, and replacement of mesh neighbours that deliver too little. No
I/O.

A neighbour that forwards nothing takes a place in the mesh without breaking a rule of the protocol, so there
is no penalty. But it is detectable: a node whose mesh neighbours forward as they should receives hardly any
message by request only. If it has to request many, it adds a peer to its mesh that had them, in place of the
neighbour that delivered least. So a neighbour that forwards nothing is replaced where that does harm, by a
peer that has proved useful.

To stay in a mesh an attacker must forward most messages, and then does no harm. It can get into a mesh by
answering requests, and is the first to be removed when it stops forwarding.
"""

from __future__ import annotations

import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

WINDOW_HEARTBEATS: Final = 10
"""Heartbeats for which deliveries are remembered."""

MIN_NEW: Final = 5
"""Least number of new messages of a topic in this window for any conclusion."""

REQUESTED_SHARE: Final = 1 / 8
"""Share of them received by request only, from which on a neighbour is replaced."""

SETTLED_HEARTBEATS: Final = 3
"""Heartbeats after which a new neighbour is evaluated, and between two exchanges on a topic."""

MAX_ASKED: Final = 8192
"""Limit of remembered requests: those of ten heartbeats, at twice the rate of a full connection."""

ANNOUNCED_SHARE: Final = 1 / 3
"""Share of the peers outside the mesh that get an IHAVE at each heartbeat. Messages are announced for three
heartbeats, and peers are selected in turn, so every message is announced to every peer."""

MIN_ANNOUNCED: Final = 6
"""Least number of peers that get an IHAVE, as in gossipsub."""

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[P]):
    """A peer to add to a mesh, and the neighbour to remove for it, if any."""

    graft: P
    prune: P | None


@dataclass(slots=True)
class _Heartbeat(Generic[P]):
    forwarded: Counter[tuple[str, P]]
    answered: Counter[tuple[str, P]]


class Supply(Generic[P]):
    """New messages of the last heartbeats by topic and peer: forwarded ones, and those requested."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._heartbeats: deque[_Heartbeat[P]] = deque([_fresh()], maxlen=WINDOW_HEARTBEATS)
        self._asked: OrderedDict[tuple[P, bytes], None] = OrderedDict()
        self._neighbours: dict[str, Counter[P]] = defaultdict(Counter)
        self._pause: Counter[str] = Counter()
        self._told: dict[str, dict[P, int]] = {}
        self._number = 0

    def asked(self, peer: P, identities: Collection[bytes]) -> None:
        """Record the ids of messages that were requested from a peer."""
        for identity in identities:
            self._asked[peer, identity] = None
        while len(self._asked) > MAX_ASKED:
            self._asked.popitem(last=False)

    def came(self, topic: str, identity: bytes, peer: P) -> None:
        """Count a new message that was accepted."""
        now = self._heartbeats[-1]
        is_answer = (peer, identity) in self._asked
        (now.answered if is_answer else now.forwarded)[topic, peer] += 1

    def shift(self) -> None:
        """Begin a new heartbeat."""
        self._number += 1
        self._heartbeats.append(_fresh())
        self._pause = Counter({topic: left - 1 for topic, left in self._pause.items() if left > 1})

    def exchange(
        self, topic: str, mesh: Collection[P], candidates: Collection[P], wanted: int
    ) -> Exchange[P] | None:
        """Return an improvement of a mesh; None if it needs none or no better peer is known.

        To be called once per heartbeat.

        Args:
            candidates: connected peers of the topic that may be taken in.
            wanted: neighbours from which on one has to leave for another.
        """
        before = self._neighbours[topic]
        self._neighbours[topic] = Counter({peer: before[peer] + 1 for peer in mesh})
        if self._pause[topic] or not self._is_short(topic):
            return None
        answered = {peer: sum(one.answered[topic, peer] for one in self._heartbeats) for peer in candidates}
        best = max(answered, key=lambda peer: (answered[peer], self._rng.random()), default=None)
        if best is None or not answered[best]:
            return None
        prune = None
        if len(mesh) >= wanted:
            judged = [peer for peer in mesh if self.is_settled(topic, peer)]
            if not judged:
                return None
            prune = self.least(topic, judged)[0]
        self._pause[topic] = SETTLED_HEARTBEATS
        return Exchange(best, prune)

    def least(self, topic: str, peers: Collection[P]) -> list[P]:
        """Return neighbours by their deliveries (see ``brought``), the fewest first, equals in random
        order."""
        brought = self.brought(topic, peers)
        return sorted(peers, key=lambda peer: (brought[peer], self._rng.random()))

    def brought(self, topic: str, peers: Collection[P]) -> dict[P, float]:
        """Return how many new messages each neighbour has forwarded without a request.

        Unsettled neighbours count with half of the mean: more than those that forward nothing, less than
        useful ones, so that many new neighbours do not displace these.
        """
        found = {peer: float(self._forwarded(topic, peer)) for peer in peers}
        settled = [count for peer, count in found.items() if self.is_settled(topic, peer)]
        if not settled:
            return found
        new = max(0.5, sum(settled) / len(settled) / 2)
        return {peer: count if self.is_settled(topic, peer) else new for peer, count in found.items()}

    def is_settled(self, topic: str, peer: P) -> bool:
        """Whether a peer has been in the mesh long enough to be evaluated."""
        return self._neighbours[topic][peer] > SETTLED_HEARTBEATS

    def to_tell(self, topic: str, others: Sequence[P], *, sparingly: bool = False) -> list[P]:
        """Return the peers that get an IHAVE now, in turn.

        To be called at most once per heartbeat.

        Args:
            others: peers outside the mesh, and unsettled neighbours, to which earlier messages were not
                forwarded.
            sparingly: select few, since each of them may request messages.
        """
        before = self._told.get(topic, {})
        told = {peer: before.get(peer, -1) for peer in others}
        share = 0.0 if sparingly else ANNOUNCED_SHARE
        count = max(MIN_ANNOUNCED, math.ceil(len(others) * share))
        chosen = sorted(others, key=lambda peer: (told[peer], self._rng.random()))[:count]
        self._told[topic] = told | dict.fromkeys(chosen, self._number)
        return chosen

    def keep_topics(self, topics: Collection[str]) -> None:
        """Drop the state of topics that are not joined."""
        for remembered in (self._neighbours, self._told):
            for topic in remembered.keys() - topics:
                del remembered[topic]

    def _forwarded(self, topic: str, peer: P) -> int:
        return sum(one.forwarded[topic, peer] for one in self._heartbeats)

    def _is_short(self, topic: str) -> bool:
        forwarded = sum(self._of(topic, one.forwarded) for one in self._heartbeats)
        answered = sum(self._of(topic, one.answered) for one in self._heartbeats)
        return forwarded + answered >= MIN_NEW and answered >= REQUESTED_SHARE * (forwarded + answered)

    @staticmethod
    def _of(topic: str, counts: Counter[tuple[str, P]]) -> int:
        return sum(count for (name, _), count in counts.items() if name == topic)


def _fresh() -> _Heartbeat[P]:
    return _Heartbeat(Counter(), Counter())
