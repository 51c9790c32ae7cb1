"""Why a group did not reach a node, or came late: from every copy of it that was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sapo_client.swarm.simulated.copies import SentCopy, Way

LATE_SECONDS: Final = 2.0
"""A delivery that takes longer is late."""

NEW_SECONDS: Final = 15.0
"""A node that has heard an island for a shorter time counts as new there."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a node stood when a group was published.

    Attributes:
        honest_peers: connected honest nodes that hear the island.
        honest_neighbours: those of them that are in the node's mesh.
        heard_seconds: for how long the node has heard the island.
    """

    honest_peers: int
    honest_neighbours: int
    heard_seconds: float


@dataclass(frozen=True, slots=True)
class Cause:
    """What kept a group from a node, or delayed it.

    Attributes:
        text: in words.
        count: pairs of group and node.
        new: those of them whose node had heard the island for less than ``NEW_SECONDS``.
    """

    text: str
    count: int
    new: int


@dataclass(slots=True)
class _Trace:
    author: str
    published_seconds: float
    around: dict[str, Surroundings]
    copies: dict[str, list[SentCopy]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    came: dict[str, tuple[str, float]] = field(default_factory=dict)


class Traces:
    """Copies of the groups that are being delivered, and the causes of those that were missed or late."""

    def __init__(self) -> None:
        self._traces: dict[bytes, _Trace] = {}
        self._missed: Counter[tuple[str, bool]] = Counter()
        self._late: Counter[tuple[str, bool]] = Counter()

    def begin(
        self, identity: bytes, author: str, now_seconds: float, around: dict[str, Surroundings]
    ) -> None:
        """Follow a group that is about to be published.

        Args:
            identity: the id of its message.
            author: the peer id of the node that publishes it.
            around: by peer id, the nodes that are to get it.
        """
        self._traces[identity] = _Trace(author, now_seconds, around)

    def sent(self, copy: SentCopy) -> None:
        """Note a copy that was sent."""
        if (trace := self._traces.get(copy.identity)) is not None:
            trace.copies.setdefault(copy.receiver, []).append(copy)

    def refused(self, identity: bytes, peer_id: str, rule: str) -> None:
        """Note a copy that a node did not admit, and the rule that it broke there."""
        if (trace := self._traces.get(identity)) is not None:
            trace.refused.setdefault(peer_id, rule)

    def admitted(self, identity: bytes, peer_id: str, forwarder: str, now_seconds: float) -> None:
        """Note a node that admitted a group."""
        if (trace := self._traces.get(identity)) is not None:
            trace.came.setdefault(peer_id, (forwarder, now_seconds))

    def end(self, identity: bytes, missed: Iterable[str], late: Iterable[str]) -> None:
        """Judge a group by the nodes that did not get it, and by those that got it late; forget it."""
        trace = self._traces.pop(identity)
        for peer_id in missed:
            self._missed[_why_missed(trace, peer_id), _is_new(trace, peer_id)] += 1
        for peer_id in late:
            self._late[_why_late(trace, peer_id), _is_new(trace, peer_id)] += 1

    def missed_causes(self) -> tuple[Cause, ...]:
        """Return why groups did not reach nodes, the most frequent cause first."""
        return _causes(self._missed)

    def late_causes(self) -> tuple[Cause, ...]:
        """Return why groups came late, the most frequent cause first."""
        return _causes(self._late)


def _causes(counted: Counter[tuple[str, bool]]) -> tuple[Cause, ...]:
    texts = Counter[str]()
    for (text, _), count in counted.items():
        texts[text] += count
    return tuple(Cause(text, count, counted[text, True]) for text, count in texts.most_common())


def _is_new(trace: _Trace, peer_id: str) -> bool:
    return trace.around[peer_id].heard_seconds < NEW_SECONDS


def _why_missed(trace: _Trace, peer_id: str) -> str:
    if (rule := trace.refused.get(peer_id)) is not None:
        return f"a copy came and was refused: {rule}"
    if trace.copies.get(peer_id):
        return "copies were on the way when the time was over, or their connection had ended"
    around = trace.around[peer_id]
    if not around.honest_peers:
        return "no honest peer that hears the island"
    if not trace.came:
        return "no node got it: its author had no honest peer that hears the island"
    if not around.honest_neighbours:
        return "no honest neighbour in the mesh, and no announcement led to a request"
    return "its honest neighbours lacked it too"


def _why_late(trace: _Trace, peer_id: str) -> str:
    """Return what the slowest step on the way of a group from its author to a node was."""
    steps = []
    while peer_id != trace.author:
        forwarder, came_seconds = trace.came[peer_id]
        is_first = forwarder == trace.author
        before_seconds = trace.published_seconds if is_first else trace.came[forwarder][1]
        steps.append((came_seconds - before_seconds, _of_step(trace, peer_id, came_seconds - before_seconds)))
        peer_id = forwarder
    return max(steps)[1]


def _of_step(trace: _Trace, peer_id: str, seconds: float) -> str:
    if (rule := trace.refused.get(peer_id)) is not None:
        return f"an earlier copy was refused: {rule}"
    forwarder, came_seconds = trace.came[peer_id]
    copies = trace.copies[peer_id]
    copy = next(one for one in copies if one.sender == forwarder and one.due_seconds == came_seconds)
    if copy.waited_seconds > seconds / 2:
        return "the uplink of a node on the way was busy"
    if copy.repeats:
        return "packets got lost and were sent again"
    if copy.way is not Way.REQUESTED:
        return f"a copy {copy.way.value} waited for packets before it that were sent again"
    if any(one.repeats for one in copies):
        return "packets of a copy got lost; another one was sent on request"
    around = trace.around.get(peer_id)
    if around is not None and not around.honest_neighbours:
        return "no honest neighbour in the mesh; the first copy was sent on request"
    return "no neighbour in the mesh had it sooner; the first copy was sent on request"
