"""Outbound queues of a simulated node; bounds, turns and pace are those of `p2p/outbound_queue.py`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from sapo_client.swarm.fair_queue import FairQueue
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, SendingPace
from sapo_client.swarm.simulated.events import EventQueue


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    size_bytes: int
    send: Callable[[], None]


@dataclass(slots=True)
class _Waiting:
    forwarded: FairQueue[_Copy]
    own: deque[_Copy] = field(default_factory=deque)
    size_bytes: int = 0
    is_due: bool = False

    def __len__(self) -> int:
        return len(self.own) + len(self.forwarded)

    def pop(self) -> _Copy | None:
        copy = self.own.popleft() if self.own else self.forwarded.pop()
        self.size_bytes -= copy.size_bytes if copy else 0
        return copy


class PacedOutbound:
    """Messages that wait until they may be sent to their peers: own ones first, then authors in turns."""

    def __init__(self, queue: EventQueue, limits: TransportLimits) -> None:
        self._queue = queue
        self._limits = limits
        self._pace = SendingPace(limits)
        self._waiting: dict[str, _Waiting] = {}

    def expect(self, quota_per_second: float) -> None:
        """Set the pace from the messages per second that all accounts together may send."""
        self._pace.expect(quota_per_second, self._queue.now_seconds)

    def push(
        self, peer_id: str, size_bytes: int, send: Callable[[], None], author: Hashable, is_own: bool
    ) -> int:
        """Call ``send`` as soon as the peer may be sent so much; return how many messages did not fit."""
        if (waiting := self._waiting.get(peer_id)) is None:
            waiting = self._waiting[peer_id] = _Waiting(FairQueue(self._limits.turn_bytes))
        copy = _Copy(size_bytes, send)
        dropped = self._add_own(waiting, copy) if is_own else self._add(waiting, copy, author)
        if not waiting.is_due:
            self._drain(peer_id, waiting, None)
        return dropped

    def left(self, peer_id: str) -> None:
        """Drop what waits for a peer whose connection ended; its pace is kept."""
        self._waiting.pop(peer_id, None)

    def _add_own(self, waiting: _Waiting, copy: _Copy) -> int:
        limits = self._limits
        most_bytes = limits.outbound_bytes + limits.control_bytes
        if len(waiting) >= limits.outbound_queue or waiting.size_bytes + copy.size_bytes > most_bytes:
            return 1
        waiting.own.append(copy)
        waiting.size_bytes += copy.size_bytes
        return 0

    def _add(self, waiting: _Waiting, copy: _Copy, author: Hashable) -> int:
        limits = self._limits
        waiting.forwarded.push(author, copy, max(copy.size_bytes, limits.turn_bytes))
        waiting.size_bytes += copy.size_bytes
        is_long = len(waiting) > math.ceil(limits.forwarded_share * limits.outbound_queue)
        dropped = freed_bytes = 0
        while (is_long and not dropped) or (
            waiting.size_bytes > limits.outbound_bytes and freed_bytes < copy.size_bytes
        ):
            one = waiting.forwarded.drop()
            assert one is not None  # the new one at least is there
            dropped += 1
            freed_bytes += one.size_bytes
            waiting.size_bytes -= one.size_bytes
            if one is copy:
                break
        return dropped

    def _drain(self, peer_id: str, waiting: _Waiting, held: _Copy | None) -> None:
        """Send what may be sent; what has to wait is held meanwhile, as by the task of a real peer."""
        waiting.is_due = False
        while self._waiting.get(peer_id) is waiting and (held := held or waiting.pop()) is not None:
            now_seconds = self._queue.now_seconds
            counted = max(held.size_bytes, self._limits.least_rpc_bytes)
            if (pause := self._pace.seconds_until(peer_id, 1, counted, now_seconds)) > 0:
                waiting.is_due = True
                due = now_seconds + max(pause, MIN_SLEEP_SECONDS)
                self._queue.at(due, partial(self._drain, peer_id, waiting, held))
                return
            self._pace.spend(peer_id, 1, counted, now_seconds)
            held.send()
            held = None
