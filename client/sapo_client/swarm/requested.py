"""Selection of the peer to ask for an announced message, so that each message is sent once. No I/O.

All peers announce the same recent messages to a node that has just connected, within milliseconds. If all
were asked, all would send them. So one is asked, and the others are remembered. A message that does not
arrive in time is requested from another, random one, then from all that have announced it.

An attacker may announce messages first and not send them. That delays a message by two heartbeats at most,
and a peer that let a request lapse is not waited for again for a minute. Forwarded messages are not delayed
at all. It may also invent ids: of one peer they are requested at a limited rate, and displace only those that
it announced first itself.

A peer that has announced a message has it, so the message is not forwarded to it; otherwise a node that has
just connected would send what it requested to all its neighbours.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from sapo_client.swarm.limits import Rate
from sapo_client.swarm.rate_limit import KeyedBuckets

PATIENCE_SECONDS: Final = 0.75
"""Wait for an answer before another peer is asked: two long-distance round trips."""

MEMORY_SECONDS: Final = 10.0
"""Time for which an announced message may be requested."""

DISTRUST_SECONDS: Final = 60.0
"""Time for which a peer that let a request lapse is not waited for."""

MAX_REQUESTS: Final = 8192
"""Limit of pending messages; beyond it the peer that announced most of them first loses its oldest one."""

ASKED_OF_PEER: Final = Rate(per_second=500, burst=4096)
"""Rate of requested ids: the messages that are new to a node at the ceiling of rates, and those of sixteen
topics at once. Without it an attacker that invents ids uses a megabyte a second of this node's upload."""

MAX_PEERS: Final = 256
"""Peers whose rates are remembered."""

MAX_OTHERS: Final = 32
"""Further announcers that are remembered per message; beyond the limit a random selection."""

_MAX_LAPSES: Final = 2
"""Requests for one message that are waited for, one after another."""

_AT_ONCE: Final = float("-inf")
"""Time of a request that is not waited for."""

P = TypeVar("P", bound=Hashable)


@dataclass(slots=True)
class _Request(Generic[P]):
    first: P
    peer: P
    first_seconds: float
    asked_seconds: float
    lapses: int = 0
    others: list[P] = field(default_factory=list)
    announced: set[P] = field(default_factory=set)


class Requested(Generic[P]):
    """The requested messages that have not arrived.

    Args:
        asked: called with each peer and the ids requested from it, except for those of its first announcement
            of a topic, since messages from before the connection could not have been forwarded.
        knows: whether a message has arrived meanwhile, by id and time.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        asked: Callable[[P, Collection[bytes]], None],
        knows: Callable[[bytes, float], bool],
    ) -> None:
        self._rng = rng
        self._asked = asked
        self._knows = knows
        self._requests: dict[bytes, _Request[P]] = {}
        self._by_first: dict[P, dict[bytes, None]] = {}
        """Pending ids by the peer that announced them first, the oldest first."""
        self._rooms = KeyedBuckets(ASKED_OF_PEER, MAX_PEERS)
        self._lapsed_seconds: dict[P, float] = {}
        self._announced: dict[P, set[str]] = defaultdict(set)

    def offered(self, peer: P, topic: str, identities: Sequence[bytes], now_seconds: float) -> list[bytes]:
        """Return the ids to request now among those that a peer announces.

        Beyond a rate of requests to the peer, what it announces is not remembered.
        """
        room = int(self._rooms.available(str(peer), now_seconds))
        lacking = [identity for identity in identities if not self._knows(identity, now_seconds)][:room]
        wanted = [identity for identity in lacking if self._takes(peer, identity, now_seconds)]
        self._rooms.take(str(peer), now_seconds, len(wanted))
        if topic in self._announced[peer] and wanted:
            self._asked(peer, wanted)
        self._announced[peer].add(topic)
        while len(self._requests) > MAX_REQUESTS:
            fullest: dict[bytes, None] = max(self._by_first.values(), key=len)
            self._drop(next(iter(fullest)))
        return wanted

    def overdue(self, now_seconds: float) -> dict[P, list[bytes]]:
        """Return the overdue ids to request now, by peer; to be called at each heartbeat."""
        found: dict[P, list[bytes]] = defaultdict(list)
        for identity, request in list(self._requests.items()):
            is_old = now_seconds - request.first_seconds >= MEMORY_SECONDS
            if is_old or self._knows(identity, now_seconds):
                self._drop(identity)
            elif self._has_lapsed(request, now_seconds) and self._can_ask_again(request):
                for peer in self._next(request):
                    request.peer, request.asked_seconds = peer, now_seconds
                    found[peer].append(identity)
        for peer, identities in found.items():
            self._asked(peer, identities)
        self._lapsed_seconds = {
            peer: since
            for peer, since in self._lapsed_seconds.items()
            if now_seconds - since < DISTRUST_SECONDS
        }
        return dict(found)

    def announced_by(self, identity: bytes) -> frozenset[P]:
        """Return the peers that announced a message while it was lacking here."""
        request = self._requests.get(identity)
        return frozenset() if request is None else frozenset(request.announced)

    def left(self, peer: P) -> None:
        """Remove a disconnected peer; messages requested from it are requested from others."""
        self._announced.pop(peer, None)
        for request in self._requests.values():
            request.announced.discard(peer)
            if peer in request.others:
                request.others.remove(peer)
            if request.peer == peer:
                request.asked_seconds = _AT_ONCE

    def _drop(self, identity: bytes) -> None:
        first = self._requests.pop(identity).first
        del self._by_first[first][identity]
        if not self._by_first[first]:
            del self._by_first[first]

    def _takes(self, peer: P, identity: bytes, now_seconds: float) -> bool:
        request = self._requests.get(identity)
        if request is None:
            self._requests[identity] = _Request(peer, peer, now_seconds, now_seconds, announced={peer})
            self._by_first.setdefault(peer, {})[identity] = None
            return True
        request.announced.add(peer)
        if self._has_lapsed(request, now_seconds):
            request.peer, request.asked_seconds = peer, now_seconds
            return True
        if peer != request.peer and peer not in request.others:
            request.others.append(peer)
            if len(request.others) > MAX_OTHERS:
                del request.others[self._rng.randrange(MAX_OTHERS + 1)]
        return False

    def _can_ask_again(self, request: _Request[P]) -> bool:
        """Whether there is anybody to ask: of a single announcer the request itself may have been lost."""
        is_alone = request.peer in request.announced and request.lapses < _MAX_LAPSES
        return bool(request.others) or is_alone

    def _next(self, request: _Request[P]) -> list[P]:
        """Take whom to ask next: one of the others that has not failed, or all of them after some lapses."""
        if not request.others:
            return [request.peer]
        if request.lapses >= _MAX_LAPSES:
            chosen = request.others
        else:
            good = [peer for peer in request.others if peer not in self._lapsed_seconds]
            chosen = [self._rng.choice(good or request.others)]
        request.others = [peer for peer in request.others if peer not in chosen]
        return chosen

    def _has_lapsed(self, request: _Request[P], now_seconds: float) -> bool:
        """Whether the answer to a request is waited for no longer."""
        if request.lapses >= _MAX_LAPSES or request.asked_seconds == _AT_ONCE:
            return True
        if now_seconds - request.asked_seconds >= PATIENCE_SECONDS:
            self._lapsed_seconds[request.peer] = now_seconds
            request.lapses += 1
            return True
        return now_seconds - self._lapsed_seconds.get(request.peer, _AT_ONCE) < DISTRUST_SECONDS
