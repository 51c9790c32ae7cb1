"""Buffer of messages whose author's certificate is missing, and arrival times of ignored messages. No I/O.

A newcomer's first rollout, and the first one that a node receives after it joined an island, may arrive
before the author's certificate. It is ignored then (R5.1), and gossip does not deliver it again. Its
forwarders are asked for the certificate, so the message is kept for the seconds that this takes and validated
once more.

Such messages may be forged. So each forwarder has a few places, and if all places are full, the forwarder
with most bytes loses its oldest message. A message from several forwarders has a place of each of them and is
kept while it has one, so an attacker cannot displace a message that another peer forwarded as well.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from sapo_client.swarm.intake import message_id
from sapo_protocol.identifiers import NodeId

MAX_OF_A_FORWARDER: Final = 16

MAX_BYTES: Final = 2 * 2**20

KEPT_SECONDS: Final = 30.0
"""Time for which a message is kept: longer than a request for a certificate may take."""

MAX_REMEMBERED: Final = 16_384
"""Ignored messages whose arrival time is kept: as many as the near-duplicate screen keeps."""

REMEMBERED_SECONDS: Final = 600.0
"""Time in which an ignored message may still become acceptable, after a wrong clock or certificate of its
author."""


@dataclass(frozen=True, slots=True)
class Unintroduced:
    """A message whose author's certificate is missing.

    Attributes:
        forwarder: the peer that sent it first.
        node: the author.
        expires_seconds: when it is dropped.
    """

    topic: str
    message: bytes
    forwarder: str
    node: NodeId
    expires_seconds: float


class UnintroducedMessages:
    """Bounded store of messages that wait for their author's certificate."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[bytes, Unintroduced] = OrderedDict()
        self._forwarders: dict[bytes, set[str]] = {}
        self._of: dict[str, OrderedDict[bytes, None]] = {}
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, topic: str, message: bytes, forwarder: str, node: NodeId, now_seconds: float) -> None:
        """Keep a message; one that is kept already gets a place of this forwarder as well."""
        self._give_up(now_seconds)
        identity = message_id(topic, message)
        if forwarder in self._forwarders.get(identity, ()) or len(message) > MAX_BYTES:
            return
        if len(self._of.get(forwarder, ())) >= MAX_OF_A_FORWARDER:
            self._drop_oldest(forwarder)
        if identity not in self._waiting:
            expires_seconds = now_seconds + KEPT_SECONDS
            self._waiting[identity] = Unintroduced(topic, message, forwarder, node, expires_seconds)
            self._forwarders[identity] = set()
            self._all_bytes += len(message)
        self._forwarders[identity].add(forwarder)
        self._of.setdefault(forwarder, OrderedDict())[identity] = None
        self._bytes[forwarder] += len(message)
        while self._all_bytes > MAX_BYTES:
            self._drop_oldest(max(self._bytes, key=self._bytes.__getitem__))

    def take(self, node: NodeId, now_seconds: float) -> tuple[Unintroduced, ...]:
        """Remove and return the messages of a node, oldest first."""
        self._give_up(now_seconds)
        found = [identity for identity, waiting in self._waiting.items() if waiting.node == node]
        return tuple(self._remove(identity) for identity in found)

    def _give_up(self, now_seconds: float) -> None:
        while self._waiting:
            oldest, waiting = next(iter(self._waiting.items()))
            if waiting.expires_seconds > now_seconds:
                return
            self._remove(oldest)

    def _remove(self, identity: bytes) -> Unintroduced:
        waiting = self._waiting[identity]
        for forwarder in tuple(self._forwarders[identity]):
            self._drop(identity, forwarder)
        return waiting

    def _drop_oldest(self, forwarder: str) -> None:
        self._drop(next(iter(self._of[forwarder])), forwarder)

    def _drop(self, identity: bytes, forwarder: str) -> None:
        """Free a forwarder's place of a message, and drop the message if it has no other place."""
        size = len(self._waiting[identity].message)
        self._bytes[forwarder] -= size
        del self._of[forwarder][identity]
        if not self._of[forwarder]:
            del self._of[forwarder], self._bytes[forwarder]
        self._forwarders[identity].remove(forwarder)
        if not self._forwarders[identity]:
            del self._forwarders[identity], self._waiting[identity]
            self._all_bytes -= size
