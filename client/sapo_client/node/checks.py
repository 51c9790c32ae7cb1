"""Outcomes of a node's last checks of answers, collected from its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import trio

from sapo_client.observe.checks import CHECKS, CheckFacts
from sapo_client.observe.health import REMEMBERED_SECONDS
from sapo_protocol.rules import Reason


class Checks:
    """The last checks with a result, and those for which this node was too busy."""

    def __init__(self) -> None:
        self._undecided: deque[tuple[float, bool]] = deque(maxlen=CHECKS)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        if event == "verified":
            self._undecided.append((trio.current_time(), False))
        elif event == "refused" and fields["reason"] == Reason.NODE_BUSY:
            self._undecided.append((trio.current_time(), True))

    def facts(self) -> CheckFacts:
        """Return the outcomes of the last hour."""
        first = trio.current_time() - REMEMBERED_SECONDS
        recent = [is_undecided for at, is_undecided in self._undecided if at >= first]
        return CheckFacts(len(recent), sum(recent))
