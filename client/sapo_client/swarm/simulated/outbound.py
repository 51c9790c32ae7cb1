"""Outbound queues of a simulated node; bounds and turns are those of a real one (`swarm/fair_queue.py`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from sapo_client.swarm.fair_queue import PeerQueue
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.rate_limit import MIN_SLEEP_SECONDS, SendingPace
from sapo_client.swarm.simulated.events import EventQueue


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    size_bytes: int
    send: Callable[[], None]


class _Waiting(PeerQueue[_Copy]):
    """Messages that wait to be sent to a peer.

    Attributes:
        is_due: whether the next message has its time already.
    """

    def __init__(self, limits: TransportLimits) -> None:
        super().__init__(limits, attrgetter("size_bytes"))
        self.is_due = False


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
            waiting = self._waiting[peer_id] = _Waiting(self._limits)
        copy = _Copy(size_bytes, send)
        dropped = not waiting.push_own(copy) if is_own else len(waiting.push(author, copy))
        if not waiting.is_due:
            self._drain(peer_id, waiting, None)
        return int(dropped)

    def left(self, peer_id: str) -> None:
        """Drop what waits for a peer whose connection ended; its pace is kept."""
        self._waiting.pop(peer_id, None)

    def _drain(self, peer_id: str, waiting: _Waiting, held: _Copy | None) -> None:
        """Send what may be sent; what has to wait is held meanwhile, as by the task of a real peer."""
        waiting.is_due = False
        while self._waiting.get(peer_id) is waiting and (held := held or waiting.pop()) is not None:
            now_seconds = self._queue.now_seconds
            counted = max(held.size_bytes, self._limits.min_rpc_bytes)
            if (pause := self._pace.seconds_until(peer_id, 1, counted, now_seconds)) > 0:
                waiting.is_due = True
                due = now_seconds + max(pause, MIN_SLEEP_SECONDS)
                self._queue.at(due, partial(self._drain, peer_id, waiting, held))
                return
            self._pace.spend(peer_id, 1, counted, now_seconds)
            held.send()
            held = None
