"""Processing of every received message before the node, in this order.

1. oversize or on a topic we did not join: dropped (oversize blames the forwarder);
2. known id: dropped; a copy of a message that we rejected blames each peer that forwards it;
3. validated, once;
4. ACCEPT: the caller forwards it. IGNORE: dropped without blame, and the same message may be
   validated again a few seconds later, or at once from another forwarder: a missing certificate is requested
   from the forwarders, and the first one may not answer. Honest peers do not forward what they ignore, and
   rate limits bound what all others send. REJECT: dropped, and the forwarder is blamed.

The id covers the whole message: a copy with one byte changed is another message, so an invalid copy
cannot shadow the valid one. It covers the topic too: the same bytes on a topic where they are
invalid must not shadow them where they are valid.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from typing import Final

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_score import Severity
from sapo_client.swarm.transport import AuthorOf, BugReport, Validator
from sapo_protocol.errors import ProtocolError, Verdict

MAX_REMEMBERED: Final = 16_384
"""Ignored messages whose arrival time is kept: as many as the near-duplicate screen keeps."""

REMEMBERED_SECONDS: Final = 600.0
"""Time in which an ignored message may still become acceptable, after a wrong clock or certificate of its
author."""


def message_id(topic: str, data: bytes) -> bytes:
    """Return the SHA-256 of topic and data, 32 bytes."""
    return hashlib.sha256(topic.encode() + b"\x00" + data).digest()


def _copy_id(identity: bytes, forwarder: str) -> bytes:
    return identity + forwarder.encode()


class SeenIds:
    """Message ids stored for a limited time; when full, the oldest is dropped first."""

    def __init__(self, *, max_ids: int, lifetime_seconds: float) -> None:
        self._max_ids = max_ids
        self._lifetime_seconds = lifetime_seconds
        self._added_seconds: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._added_seconds)

    def add(self, message_id: bytes, now_seconds: float) -> None:
        """Store an id; the lifetime of a known id is not renewed."""
        if self.has(message_id, now_seconds):
            return
        self._added_seconds[message_id] = now_seconds
        self._forget(now_seconds)

    def since(self, message_id: bytes, now_seconds: float) -> float | None:
        """Return when the id was stored, or None if it is not stored or has expired."""
        return self._added_seconds[message_id] if self.has(message_id, now_seconds) else None

    def has(self, message_id: bytes, now_seconds: float) -> bool:
        """Whether the id is stored and not expired."""
        added_seconds = self._added_seconds.get(message_id)
        if added_seconds is None:
            return False
        if now_seconds - added_seconds < self._lifetime_seconds:
            return True
        del self._added_seconds[message_id]
        return False

    def _forget(self, now_seconds: float) -> None:
        while self._added_seconds:
            oldest, added_seconds = next(iter(self._added_seconds.items()))
            full = len(self._added_seconds) > self._max_ids
            if not full and now_seconds - added_seconds < self._lifetime_seconds:
                return
            del self._added_seconds[oldest]


class FirstArrivals:
    """First arrival times of ignored messages, bounded in number.

    An ignored message may be validated much later, when what it lacked has arrived. The order of arrival
    decides which of two equal texts is the copy, so a message keeps the time of its first arrival, also if it
    is dropped and received again.
    """

    def __init__(self) -> None:
        self._seen = SeenIds(max_ids=MAX_REMEMBERED, lifetime_seconds=REMEMBERED_SECONDS)

    def note(self, topic: str, message: bytes, now_seconds: float) -> None:
        """Record a message that is ignored now; a later copy of it changes nothing."""
        self._seen.add(message_id(topic, message), now_seconds)

    def first_seconds(self, topic: str, message: bytes, now_seconds: float) -> float | None:
        """Return when a message arrived first, at the latest now; None if it was not ignored before."""
        if not self._seen:
            return None
        since = self._seen.since(message_id(topic, message), now_seconds)
        return None if since is None else min(since, now_seconds)


class Intake:
    """Validates each message once and stores the ids of known ones; does no networking."""

    def __init__(
        self, limits: TransportLimits, discipline: Discipline, counters: TransportCounters, on_bug: BugReport
    ) -> None:
        self._limits = limits
        self._discipline = discipline
        self._counters = counters
        self._on_bug = on_bug
        self._validators: dict[str, Validator] = {}
        self._author_of: dict[str, AuthorOf] = {}
        self._seen = self._new_store(limits.seen_seconds)
        self._rejected = self._new_store(limits.seen_seconds)
        self._ignored = self._new_store(limits.ignored_seconds)
        self._ignored_from = self._new_store(limits.ignored_seconds)
        self.received_by_peer: Counter[str] = Counter()
        self.rejected_by_peer: Counter[str] = Counter()

    def _new_store(self, lifetime_seconds: float) -> SeenIds:
        return SeenIds(max_ids=self._limits.seen_messages, lifetime_seconds=lifetime_seconds)

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics that have a validator."""
        return tuple(self._validators)

    def subscribe(self, topic: str, validator: Validator, author_of: AuthorOf | None = None) -> None:
        """Validate the messages of a topic with `validator`; one validator per topic."""
        if topic in self._validators:
            raise ValueError(f"topic {topic} already has a validator")
        self._validators[topic] = validator
        if author_of is not None:
            self._author_of[topic] = author_of

    def unsubscribe(self, topic: str) -> None:
        """Drop the messages of a topic from now on."""
        self._validators.pop(topic, None)
        self._author_of.pop(topic, None)

    def author_of(self, topic: str, data: bytes, forwarder: str) -> str:
        """Return whose turn an accepted message takes: its author's, or its forwarder's if none is known."""
        author_of = self._author_of.get(topic)
        return (author_of(data) if author_of else None) or forwarder

    def forget_peer(self, peer_id: str) -> None:
        """Drop the counts of a peer that disconnected, since peer ids are free."""
        self.received_by_peer.pop(peer_id, None)
        self.rejected_by_peer.pop(peer_id, None)

    def knows(self, identity: bytes, now_seconds: float) -> bool:
        """Whether the message is known, so that it need not be requested."""
        stores = (self._seen, self._rejected, self._ignored)
        return any(store.has(identity, now_seconds) for store in stores)

    def remember_own(self, topic: str, data: bytes, now_seconds: float) -> bool:
        """Store the id of our own message; return whether it is new."""
        identity = message_id(topic, data)
        if self._seen.has(identity, now_seconds):
            return False
        self._seen.add(identity, now_seconds)
        return True

    def accept_late(self, topic: str, data: bytes, now_seconds: float) -> bool:
        """Accept a message that was ignored before; return whether to forward it."""
        identity = message_id(topic, data)
        if topic not in self._validators or self._seen.has(identity, now_seconds):
            return False
        self._seen.add(identity, now_seconds)  # it was counted when it came, as ignored
        return True

    def process(self, topic: str, data: bytes, forwarder: str, now_seconds: float) -> bool:
        """Process one message; return whether to forward it: it is new and was accepted."""
        validator = self._validators.get(topic)
        if validator is None:
            return False
        self._counters.received += 1
        self.received_by_peer[forwarder] += 1
        if len(data) > self._limits.max_message_bytes:
            self._counters.oversize += 1
            self.blame(forwarder, now_seconds)
            return False
        identity = message_id(topic, data)
        if self._is_known(identity, forwarder, now_seconds):
            return False
        verdict = self._validate(validator, data, forwarder)
        return self._apply(verdict, identity, forwarder, now_seconds)

    def _is_known(self, identity: bytes, forwarder: str, now_seconds: float) -> bool:
        if self._rejected.has(identity, now_seconds):
            self.blame(forwarder, now_seconds)
        elif not (
            self._seen.has(identity, now_seconds)
            or self._ignored_from.has(_copy_id(identity, forwarder), now_seconds)
        ):
            return False
        self._counters.duplicates += 1
        return True

    def _validate(self, validator: Validator, data: bytes, forwarder: str) -> Verdict:
        try:
            return validator(data, forwarder)
        except ProtocolError:
            return Verdict.REJECT
        except Exception as error:  # noqa: BLE001  a bug of ours costs a message, no service, and blames no peer
            self._counters.bugs += 1
            self._on_bug(error)
            return Verdict.IGNORE

    def _apply(self, verdict: Verdict, identity: bytes, forwarder: str, now_seconds: float) -> bool:
        if verdict is Verdict.REJECT:
            self._counters.rejected += 1
            self._rejected.add(identity, now_seconds)
            self.blame(forwarder, now_seconds)
            return False
        if verdict is Verdict.IGNORE:
            self._counters.ignored += 1
            self._ignored.add(identity, now_seconds)
            self._ignored_from.add(_copy_id(identity, forwarder), now_seconds)
            return False
        self._counters.accepted += 1
        self._seen.add(identity, now_seconds)
        return True

    def blame(self, forwarder: str, now_seconds: float) -> None:
        """Count a message against the peer that sent it."""
        self.rejected_by_peer[forwarder] += 1
        self._discipline.blame(forwarder, Severity.MID, now_seconds)
