"""Causes of lost and late deliveries, derived from all sent copies of a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sapo_client.swarm.simulated.copies import SentCopy, Way

LATE_SECONDS: Final = 2.0
"""Delay above which a delivery counts as late."""

NEW_SECONDS: Final = 15.0
"""A node that has been subscribed to an island for a shorter time counts as new there."""


@dataclass(frozen=True, slots=True)
class Connectivity:
    """A node's connections at the time when a group was published.

    Attributes:
        honest_peers: number of connected honest nodes that are subscribed to the island.
        honest_neighbours: number of them in the node's mesh.
        heard_seconds: time since the node subscribed to the island.
    """

    honest_peers: int
    honest_neighbours: int
    heard_seconds: float


@dataclass(frozen=True, slots=True)
class Cause:
    """Why groups were lost or late at nodes.

    Attributes:
        text: description of the cause.
        count: number of (group, node) pairs.
        new: number of them whose node had been subscribed to the island for less than ``NEW_SECONDS``.
    """

    text: str
    count: int
    new: int


@dataclass(slots=True)
class _Trace:
    author: str
    published_seconds: float
    connectivity: dict[str, Connectivity]
    copies: dict[str, list[SentCopy]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    came: dict[str, tuple[str, float]] = field(default_factory=dict)


class Traces:
    """Copies of the groups in delivery, and the causes of lost and late deliveries."""

    def __init__(self) -> None:
        self._traces: dict[bytes, _Trace] = {}
        self._missed: Counter[tuple[str, bool]] = Counter()
        self._late: Counter[tuple[str, bool]] = Counter()

    def begin(
        self, identity: bytes, author: str, now_seconds: float, connectivity: dict[str, Connectivity]
    ) -> None:
        """Trace a group that is about to be published.

        Args:
            identity: its message id.
            author: the peer id of the publishing node.
            connectivity: of the nodes that should receive it, by peer id.
        """
        self._traces[identity] = _Trace(author, now_seconds, connectivity)

    def sent(self, copy: SentCopy) -> None:
        """Record a sent copy."""
        if (trace := self._traces.get(copy.identity)) is not None:
            trace.copies.setdefault(copy.receiver, []).append(copy)

    def refused(self, identity: bytes, peer_id: str, rule: str) -> None:
        """Record a copy that a node refused, and the rule that it broke."""
        if (trace := self._traces.get(identity)) is not None:
            trace.refused.setdefault(peer_id, rule)

    def admitted(self, identity: bytes, peer_id: str, forwarder: str, now_seconds: float) -> None:
        """Record that a node admitted a group."""
        if (trace := self._traces.get(identity)) is not None:
            trace.came.setdefault(peer_id, (forwarder, now_seconds))

    def end(self, identity: bytes, missed: Iterable[str], late: Iterable[str]) -> None:
        """Find the causes for the nodes at which a group was lost or late, and remove its trace."""
        trace = self._traces.pop(identity)
        for peer_id in missed:
            self._missed[_why_missed(trace, peer_id), _is_new(trace, peer_id)] += 1
        for peer_id in late:
            self._late[_why_late(trace, peer_id), _is_new(trace, peer_id)] += 1

    def missed_causes(self) -> tuple[Cause, ...]:
        """Return the causes of lost deliveries, the most frequent one first."""
        return _causes(self._missed)

    def late_causes(self) -> tuple[Cause, ...]:
        """Return the causes of late deliveries, the most frequent one first."""
        return _causes(self._late)


def _causes(counted: Counter[tuple[str, bool]]) -> tuple[Cause, ...]:
    texts = Counter[str]()
    for (text, _), count in counted.items():
        texts[text] += count
    return tuple(Cause(text, count, counted[text, True]) for text, count in texts.most_common())


def _is_new(trace: _Trace, peer_id: str) -> bool:
    return trace.connectivity[peer_id].heard_seconds < NEW_SECONDS


def _why_missed(trace: _Trace, peer_id: str) -> str:
    if (rule := trace.refused.get(peer_id)) is not None:
        return f"a copy was received and refused: {rule}"
    if trace.copies.get(peer_id):
        return "copies were still in transit at the deadline, or their connection had ended"
    connectivity = trace.connectivity[peer_id]
    if not connectivity.honest_peers:
        return "no honest peer is subscribed to the island"
    if not trace.came:
        return "no node received it: no honest peer of its author is subscribed to the island"
    if not connectivity.honest_neighbours:
        return "no honest neighbour in the mesh, and no announcement led to a request"
    return "its honest mesh neighbours had not received it either"


def _why_late(trace: _Trace, peer_id: str) -> str:
    """Return the cause of the slowest hop on a group's path from its author to a node."""
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
        return "the uplink of a node on the path was busy"
    if copy.repeats:
        return "packets were lost and sent again"
    if copy.way is not Way.REQUESTED:
        return f"a copy {copy.way.value} waited for earlier packets that were sent again"
    if any(one.repeats for one in copies):
        return "packets of a copy were lost; another copy was sent on request"
    connectivity = trace.connectivity.get(peer_id)
    if connectivity is not None and not connectivity.honest_neighbours:
        return "no honest neighbour in the mesh; the first copy was sent on request"
    return "no mesh neighbour had it sooner; the first copy was sent on request"
