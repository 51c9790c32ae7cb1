"""Outbound queues of a simulated node; bounds and pace are those of `p2p/outbound_queue.py`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, SendingPace
from sapo_client.swarm.simulated.events import EventQueue

Send = Callable[[], None]


@dataclass(slots=True)
class _Waiting:
    own: deque[tuple[int, Send]] = field(default_factory=deque)
    forwarded: deque[tuple[int, Send]] = field(default_factory=deque)
    size_bytes: int = 0
    is_due: bool = False

    def __len__(self) -> int:
        return len(self.own) + len(self.forwarded)


class PacedOutbound:
    """Messages that wait until they may be sent to their peers, own ones before forwarded ones."""

    def __init__(self, queue: EventQueue, limits: TransportLimits) -> None:
        self._queue = queue
        self._limits = limits
        self._pace = SendingPace(limits)
        self._waiting: dict[str, _Waiting] = {}

    def expect(self, quota_per_second: float) -> None:
        """Set the pace from the messages per second that all accounts together may send."""
        self._pace.expect(quota_per_second, self._queue.now_seconds)

    def push(self, peer_id: str, size_bytes: int, send: Send, *, is_own: bool) -> bool:
        """Call ``send`` as soon as the peer may be sent so much; return False where it does not fit."""
        limits, waiting = self._limits, self._waiting.setdefault(peer_id, _Waiting())
        most = limits.outbound_queue * (1.0 if is_own else limits.forwarded_share)
        most_bytes = limits.outbound_bytes + (limits.control_bytes if is_own else 0)
        if len(waiting) >= math.ceil(most) or waiting.size_bytes + size_bytes > most_bytes:
            return False
        (waiting.own if is_own else waiting.forwarded).append((size_bytes, send))
        waiting.size_bytes += size_bytes
        if not waiting.is_due:
            self._drain(peer_id, waiting)
        return True

    def left(self, peer_id: str) -> None:
        """Drop what waits for a peer whose connection ended; its pace is kept."""
        self._waiting.pop(peer_id, None)

    def _drain(self, peer_id: str, waiting: _Waiting) -> None:
        waiting.is_due = False
        while len(waiting) and self._waiting.get(peer_id) is waiting:
            queue, now_seconds = waiting.own or waiting.forwarded, self._queue.now_seconds
            size_bytes, send = queue[0]
            counted = max(size_bytes, self._limits.least_rpc_bytes)
            if (pause := self._pace.seconds_until(peer_id, 1, counted, now_seconds)) > 0:
                waiting.is_due = True
                due = now_seconds + max(pause, MIN_SLEEP_SECONDS)
                self._queue.at(due, partial(self._drain, peer_id, waiting))
                return
            queue.popleft()
            waiting.size_bytes -= size_bytes
            self._pace.spend(peer_id, 1, counted, now_seconds)
            send()
