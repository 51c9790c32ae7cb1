"""Which peers bring the messages of a topic, and whom a mesh does better without. Pure.

Who forwards nothing costs a mesh a place, and no rule of the protocol is broken: there is no fault to blame.
But it shows. A node whose neighbours in the mesh forward what they should gets hardly any message on request
only; one that has to request many takes a peer into its mesh that had them, in place of the neighbour that
brought least. So a neighbour that forwards nothing is replaced where that does harm, by one that has proved
to be of use, and it makes no difference who it is.

An attacker who knows this must forward most messages to every node in whose mesh he wants to stay: then he
does no harm. He can answer requests to be taken in, and is the first to go again when he falls silent.
"""

from __future__ import annotations

import math
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

WINDOW_HEARTBEATS: Final = 10
"""What came before is forgotten."""

LEAST_NEW: Final = 5
"""Messages of a topic in this time, without which nothing is concluded."""

REQUESTED_SHARE: Final = 1 / 8
"""Share of them that came on request only, from which on the mesh is short of neighbours that forward."""

SETTLED_HEARTBEATS: Final = 3
"""A neighbour is judged from then on, and between two exchanges on a topic as many pass."""

MOST_ASKED: Final = 8192
"""Requests that are remembered: those of ten heartbeats, at twice the rate of a full connection."""

ANNOUNCED_SHARE: Final = 1 / 3
"""Share of the peers beside the mesh that are told of new messages at each heartbeat. Messages are announced
for three heartbeats, and peers are told in turns: so everybody is told of every message."""

LEAST_ANNOUNCED: Final = 6
"""At least so many are told, gossipsub's usual number."""

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[P]):
    """A peer that a mesh takes in, and the neighbour that leaves for it, if any has to."""

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
        """Note the ids of messages that a peer was asked for."""
        for identity in identities:
            self._asked[peer, identity] = None
        while len(self._asked) > MOST_ASKED:
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
        """Return what makes a mesh better, or none if it is well or nobody better is known.

        To be called once in a heartbeat.

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
        """Return neighbours by what they bring, see ``brought``, the least first and equals by lot."""
        brought = self.brought(topic, peers)
        return sorted(peers, key=lambda peer: (brought[peer], self._rng.random()))

    def brought(self, topic: str, peers: Collection[P]) -> dict[P, float]:
        """Return how many new messages each neighbour has brought without being asked.

        Those that have not settled yet stand for half of the mean: more than neighbours that forward nothing,
        less than the useful ones, which a crowd of new neighbours must not push out.
        """
        found = {peer: float(self._forwarded(topic, peer)) for peer in peers}
        settled = [count for peer, count in found.items() if self.is_settled(topic, peer)]
        if not settled:
            return found
        new = max(0.5, sum(settled) / len(settled) / 2)
        return {peer: count if self.is_settled(topic, peer) else new for peer, count in found.items()}

    def is_settled(self, topic: str, peer: P) -> bool:
        """Whether a peer has been in the mesh long enough to be judged, and to have got all messages."""
        return self._neighbours[topic][peer] > SETTLED_HEARTBEATS

    def to_tell(self, topic: str, others: Sequence[P], *, sparingly: bool = False) -> list[P]:
        """Return the peers that are told of new messages now: whose turn it is.

        To be called at most once in a heartbeat.

        Args:
            others: those beside the mesh, and neighbours that have not settled: what came before they joined
                the mesh was not forwarded to them.
            sparingly: tell few, for each will ask for what it lacks.
        """
        before = self._told.get(topic, {})
        told = {peer: before.get(peer, -1) for peer in others}
        share = 0.0 if sparingly else ANNOUNCED_SHARE
        count = max(LEAST_ANNOUNCED, math.ceil(len(others) * share))
        chosen = sorted(others, key=lambda peer: (told[peer], self._rng.random()))[:count]
        self._told[topic] = told | dict.fromkeys(chosen, self._number)
        return chosen

    def keep_topics(self, topics: Collection[str]) -> None:
        """Drop what is remembered of topics other than those that are joined."""
        for remembered in (self._neighbours, self._told):
            for topic in remembered.keys() - topics:
                del remembered[topic]

    def _forwarded(self, topic: str, peer: P) -> int:
        return sum(one.forwarded[topic, peer] for one in self._heartbeats)

    def _is_short(self, topic: str) -> bool:
        forwarded = sum(self._of(topic, one.forwarded) for one in self._heartbeats)
        answered = sum(self._of(topic, one.answered) for one in self._heartbeats)
        return forwarded + answered >= LEAST_NEW and answered >= REQUESTED_SHARE * (forwarded + answered)

    @staticmethod
    def _of(topic: str, counts: Counter[tuple[str, P]]) -> int:
        return sum(count for (name, _), count in counts.items() if name == topic)


def _fresh() -> _Heartbeat[P]:
    return _Heartbeat(Counter(), Counter())
