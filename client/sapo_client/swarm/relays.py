"""Which connected peers pass on what others wrote, and of which islands a node hears too little. Pure.

An author whose neighbours take its messages and pass none on cannot see that directly: a message never comes
back to who sent it. But such neighbours bring nothing of others either. So a peer counts as a *relay* of an
island once it was the first to bring a message that another node wrote; what it wrote itself counts for
nothing, and neither does a copy of what is known, which can be sent back to whoever it came from.

An island is *short* where something was said on it, by this node or by authors over their own connections,
and fewer than two connected peers are relays. Where nothing was said nothing follows. Further members are
sought then (`swarm/sought.py`). Only where nobody is a relay may connected members give way to others: an
attacker who is faster than all honest neighbours makes them look idle, but by that he is a relay himself.

The clock is passed in, in seconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

ENOUGH_RELAYS: Final = 2
"""From so many on an island is not short: one of them may leave."""

HEARD_SECONDS: Final = 60.0
"""What came before is forgotten: a relay that falls silent is none after that."""

PATIENCE_SECONDS: Final = 5.0
"""For which a new connection is not called idle: some heartbeats, until it is in a mesh. Something must have
been said meanwhile, too."""

PROVING_MESSAGES: Final = 3
"""Said on an island within ``HEARD_SECONDS``, while nothing was passed on, from which on members give way."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """An island of which a node hears too little.

    Attributes:
        idle: connected peers that brought nothing of others there although they had time to.
        may_replace: whether idle members may give way to others, since nobody is a relay.
    """

    idle: frozenset[str]
    may_replace: bool


NOTHING_SHORT: Final[Mapping[int, Shortage]] = MappingProxyType({})


@dataclass(slots=True)
class _Heard:
    """What was heard of an island: when each relay was one last, and when something else was said."""

    relayed: dict[str, float] = field(default_factory=dict)
    said: deque[float] = field(default_factory=lambda: deque(maxlen=PROVING_MESSAGES))


class Relays:
    """The relays of each island among the connected peers."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = defaultdict(_Heard)
        self._since: dict[str, float] = {}

    def published(self, island: int, now_seconds: float) -> None:
        """Note that this node said something on an island."""
        self._heard[island].said.append(now_seconds)

    def came(self, island: int, author: str, forwarder: str, now_seconds: float) -> None:
        """Note a new valid message of an island.

        Args:
            author: the peer id of the node that wrote it.
            forwarder: the peer that was the first to bring it.
        """
        if forwarder == author:
            self._heard[island].said.append(now_seconds)
        else:
            self._heard[island].relayed[forwarder] = now_seconds

    def shortages(
        self, islands: Collection[int], connected: Collection[str], now_seconds: float
    ) -> dict[int, Shortage]:
        """Return the islands of which this node hears too little; to be called every few seconds.

        Args:
            islands: that this node carries; what was heard of others is forgotten.
            connected: all connected peers, whoever opened the connection.
        """
        self._since = {peer: self._since.get(peer, now_seconds) for peer in connected}
        for island in self._heard.keys() - islands:
            del self._heard[island]
        found = {island: self._shortage(heard, now_seconds) for island, heard in self._heard.items()}
        return {island: shortage for island, shortage in found.items() if shortage is not None}

    def _shortage(self, heard: _Heard, now_seconds: float) -> Shortage | None:
        begin_seconds = now_seconds - HEARD_SECONDS
        heard.relayed = {
            peer: when for peer, when in heard.relayed.items() if when > begin_seconds and peer in self._since
        }
        said = sum(when > begin_seconds for when in heard.said)
        if not said or len(heard.relayed) >= ENOUGH_RELAYS:
            return None
        idle = frozenset(
            peer
            for peer, since in self._since.items()
            if peer not in heard.relayed
            and now_seconds - since >= PATIENCE_SECONDS
            and any(when > since for when in heard.said)
        )
        return Shortage(idle, may_replace=not heard.relayed and said >= PROVING_MESSAGES)
