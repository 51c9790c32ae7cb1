"""Bounded store of messages that could not be decided when they came, by what they wait for. No I/O.

Such messages may be forged. So each forwarder has a few places, and if all places are full, the forwarder
with most bytes loses its oldest message. A message from several forwarders has a place of each of them and is
kept while it has one, so an attacker cannot displace a message that another peer forwarded as well.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sapo_client.swarm.intake import message_id

Awaited = TypeVar("Awaited")


@dataclass(frozen=True, slots=True)
class WaitingMessage(Generic[Awaited]):
    """A message that waits.

    Attributes:
        forwarder: the peer that sent it first.
        awaited: what it waits for.
        expires_seconds: when it is dropped.
    """

    topic: str
    message: bytes
    forwarder: str
    awaited: Awaited
    expires_seconds: float


class WaitingMessages(Generic[Awaited]):
    """Messages that wait, oldest first.

    Args:
        max_of_a_forwarder: places of a forwarder.
        max_bytes: of all messages together.
        kept_seconds: after which a message is dropped.
    """

    def __init__(self, *, max_of_a_forwarder: int, max_bytes: int, kept_seconds: float) -> None:
        self._max_of_a_forwarder = max_of_a_forwarder
        self._max_bytes = max_bytes
        self._kept_seconds = kept_seconds
        self._waiting: OrderedDict[bytes, WaitingMessage[Awaited]] = OrderedDict()
        self._forwarders: dict[bytes, set[str]] = {}
        self._of: dict[str, OrderedDict[bytes, None]] = {}
        self._bytes: Counter[str] = Counter()
        self._all_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, topic: str, message: bytes, forwarder: str, awaited: Awaited, now_seconds: float) -> None:
        """Keep a message; one that is kept already gets a place of this forwarder as well."""
        self._give_up(now_seconds)
        identity = message_id(topic, message)
        if forwarder in self._forwarders.get(identity, ()) or len(message) > self._max_bytes:
            return
        if len(self._of.get(forwarder, ())) >= self._max_of_a_forwarder:
            self._drop_oldest(forwarder)
        if identity not in self._waiting:
            expires_seconds = now_seconds + self._kept_seconds
            self._waiting[identity] = WaitingMessage(topic, message, forwarder, awaited, expires_seconds)
            self._forwarders[identity] = set()
            self._all_bytes += len(message)
        self._forwarders[identity].add(forwarder)
        self._of.setdefault(forwarder, OrderedDict())[identity] = None
        self._bytes[forwarder] += len(message)
        while self._all_bytes > self._max_bytes:
            self._drop_oldest(max(self._bytes, key=self._bytes.__getitem__))

    def take_if(
        self, has_come: Callable[[Awaited], bool], now_seconds: float
    ) -> tuple[WaitingMessage[Awaited], ...]:
        """Remove and return the messages that wait for what has come, oldest first."""
        self._give_up(now_seconds)
        found = [identity for identity, waiting in self._waiting.items() if has_come(waiting.awaited)]
        return tuple(self._remove(identity) for identity in found)

    def _give_up(self, now_seconds: float) -> None:
        while self._waiting:
            oldest, waiting = next(iter(self._waiting.items()))
            if waiting.expires_seconds > now_seconds:
                return
            self._remove(oldest)

    def _remove(self, identity: bytes) -> WaitingMessage[Awaited]:
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
