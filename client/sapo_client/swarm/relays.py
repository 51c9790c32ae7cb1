"""Detection of peers that relay messages, and of islands with too few relays. No I/O.

An author whose neighbours accept its messages but do not forward them cannot see that directly, since a
message is not sent back to its sender. But such neighbours deliver no messages of other authors either. So a
peer counts as a *relay* of an island after it was the first to deliver a message that another node wrote. Its
own messages do not count, nor do copies of known ones, which any peer can echo.

An island is *short* if there were messages on it, by this node or by authors over their own connections, and
fewer than two connected peers are relays. Without messages there is no conclusion. If it is short, further
members are sought (`swarm/sought.py`). Connected members may be replaced only if there is no relay at all: an
attacker that is faster than all honest neighbours makes them look idle, but is then a relay itself.

The clock is passed in, in seconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

ENOUGH_RELAYS: Final = 2
"""Relays with which an island is not short: two, since one may leave."""

WINDOW_SECONDS: Final = 60.0
"""Time for which deliveries are remembered; a relay that is silent for longer is none any more."""

PUBLISHED_SECONDS: Final = 3600.0
"""Time for which an own message counts as lately published; slow models make few groups an hour."""

PATIENCE_SECONDS: Final = 5.0
"""Time for which a new connection does not count as idle: some heartbeats, until it is in a mesh. There must
also have been a message meanwhile."""

PROVING_MESSAGES: Final = 3
"""Messages on an island within ``WINDOW_SECONDS`` without any relayed one, from which on members are
replaced."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """An island from which a node receives too few messages.

    Attributes:
        idle: connected peers that have relayed nothing there although they had time to.
        may_replace: whether idle members may be replaced, since there is no relay.
    """

    idle: frozenset[str]
    may_replace: bool


NOTHING_SHORT: Final[Mapping[int, Shortage]] = MappingProxyType({})


@dataclass(slots=True)
class _Activity:
    """Observations of an island: last delivery of each relay, and times of other messages."""

    relayed: dict[str, float] = field(default_factory=dict)
    messages: deque[float] = field(default_factory=lambda: deque(maxlen=PROVING_MESSAGES))


class Relays:
    """The relays of each island among the connected peers."""

    def __init__(self) -> None:
        self._activity: dict[int, _Activity] = defaultdict(_Activity)
        self._since: dict[str, float] = {}
        self._published: dict[int, float] = {}

    def published(self, island: int, now_seconds: float) -> None:
        """Record that this node published a message on an island."""
        self._activity[island].messages.append(now_seconds)
        self._published[island] = now_seconds

    def published_on(self, islands: Collection[int], now_seconds: float) -> frozenset[int]:
        """Return those of some islands on which this node has published a message lately."""
        return frozenset(
            island
            for island, when in self._published.items()
            if island in islands and now_seconds - when < PUBLISHED_SECONDS
        )

    def came(self, island: int, author: str, forwarder: str, now_seconds: float) -> None:
        """Record a new valid message of an island.

        Args:
            author: the peer id of the node that wrote it.
            forwarder: the peer that delivered it first.
        """
        if forwarder == author:
            self._activity[island].messages.append(now_seconds)
        else:
            self._activity[island].relayed[forwarder] = now_seconds

    def shortages(
        self, islands: Collection[int], connected: Collection[str], now_seconds: float
    ) -> dict[int, Shortage]:
        """Return the islands that are short; to be called every few seconds.

        Args:
            islands: those that this node carries; observations of others are dropped.
            connected: all connected peers, whoever opened the connection.
        """
        self._since = {peer: self._since.get(peer, now_seconds) for peer in connected}
        for island in self._activity.keys() - islands:
            del self._activity[island]
        self._published = {each: when for each, when in self._published.items() if each in islands}
        found = {island: self._shortage(activity, now_seconds) for island, activity in self._activity.items()}
        return {island: shortage for island, shortage in found.items() if shortage is not None}

    def _shortage(self, activity: _Activity, now_seconds: float) -> Shortage | None:
        begin_seconds = now_seconds - WINDOW_SECONDS
        activity.relayed = {
            peer: when
            for peer, when in activity.relayed.items()
            if when > begin_seconds and peer in self._since
        }
        messages = sum(when > begin_seconds for when in activity.messages)
        if not messages or len(activity.relayed) >= ENOUGH_RELAYS:
            return None
        idle = frozenset(
            peer
            for peer, since in self._since.items()
            if peer not in activity.relayed
            and now_seconds - since >= PATIENCE_SECONDS
            and any(when > since for when in activity.messages)
        )
        return Shortage(idle, may_replace=not activity.relayed and messages >= PROVING_MESSAGES)
