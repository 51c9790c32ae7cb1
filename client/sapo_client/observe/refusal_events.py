"""Refused messages in the event file: a limited number in full, the others counted.

Anybody can send messages that are refused, ten thousand a second and more. Without a limit, their events
would push all others out of the rotated file.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from sapo_client.observe.events import Event, EventLog

INTERVAL_SECONDS: Final = 60.0

MAX_OF_A_REASON: Final = 30
"""Maximum number of refusals for one reason written in full per interval, so that no reason hides another
..."""

MAX_OF_A_PEER: Final = 10
"""... and of these, the maximum for one peer."""

_MAX_PEERS: Final = 4096
"""Maximum number of peers counted separately per interval; handshakes limit how fast peers can appear."""


class RefusalEvents:
    """Writer of the events ``refused`` of messages, and of ``refusals_counted`` for the others.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, events: EventLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._begin_interval()

    def _begin_interval(self) -> None:
        self._began = self._clock()
        self._of_reason: Counter[str] = Counter()
        self._of_peer: Counter[tuple[str, str]] = Counter()
        self._left_out: Counter[str] = Counter()
        self._peers: set[str] = set()

    def write(self, refusal: Mapping[str, object]) -> bool:
        """Write a refusal, or only count it; return whether it was written.

        Args:
            refusal: the fields of the event; `count` is the number of messages, one if it is not there.
        """
        self.look()
        reason, forwarder, count = str(refusal["reason"]), str(refusal["forwarder"]), refusal.get("count", 1)
        if self._of_reason[reason] < MAX_OF_A_REASON and self._of_peer[reason, forwarder] < MAX_OF_A_PEER:
            self._of_reason[reason] += 1
            self._of_peer[reason, forwarder] += 1
            self._events.write("refused", **refusal)
            return True
        self._left_out[reason] += int(str(count))
        if len(self._peers) < _MAX_PEERS:
            self._peers.add(forwarder)
        return False

    def look(self) -> None:
        """Write the summary if the interval has ended."""
        if self._clock() - self._began >= INTERVAL_SECONDS:
            self.sum_up()

    def sum_up(self) -> None:
        """Write how many refusals of this interval were only counted, if any, and begin the next one."""
        if self._left_out:
            self._events.write(
                "refusals_counted",
                count=self._left_out.total(),
                reasons=dict(sorted(self._left_out.items())),
                forwarders=len(self._peers),
                seconds=round(self._clock() - self._began, 1),
            )
        self._begin_interval()


def counts_by_reason(event: Event) -> dict[str, int]:
    """Return the counts by reason of an event ``refusals_counted``."""
    reasons = event.get("reasons")
    counts = reasons.items() if isinstance(reasons, dict) else ()
    return {reason: count for reason, count in counts if isinstance(count, int)}
