"""Observation of the chain over time: new blocks, final epochs, and rounds that are not shared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import trio

from sapo_client.observe.assessments.chain import PrivateFacts, SettlementFacts
from sapo_client.observe.assessments.steps import STEPS, StepFacts
from sapo_protocol.epochs import present_epoch
from sapo_protocol.manifest import Manifest

_STEADY_SECONDS: Final = 600.0
"""A chain that showed a new block at every look for so long makes them steadily; one of tests makes them with
transactions alone."""

_SETTLING_SECONDS: Final = 120.0
"""How long a lack of final epochs must last: after a suspension the ledger is read again first."""

_WAITS: Final = ("no beacon", "no terms", "no record")
"""How the events begin that say what an epoch waits for."""


class BlockWatch:
    """Reads the newest block, and measures the time without a new one."""

    def __init__(self) -> None:
        self._newest_seconds = 0
        self._seen: float | None = None
        self._steady_since: float | None = None
        self._is_steady = False

    def looked(self, block_seconds: int) -> None:
        """Record a look at the chain that was answered.

        Args:
            block_seconds: timestamp of the newest block, Unix seconds.
        """
        now = trio.current_time()
        if block_seconds > self._newest_seconds:
            self._newest_seconds, self._seen = block_seconds, now
            self._steady_since = now if self._steady_since is None else self._steady_since
            self._is_steady = self._is_steady or now - self._steady_since >= _STEADY_SECONDS
        else:
            self._steady_since = None

    @property
    def stalled_seconds(self) -> float:
        """Return the time since the last new block of a chain that made them steadily; else 0."""
        return trio.current_time() - self._seen if self._is_steady and self._seen is not None else 0.0


class SettlementWatch:
    """The epochs that became final, from the node's events.

    Args:
        clock: returns the Unix time in seconds.
    """

    def __init__(self, manifest: Manifest, clock: Callable[[], float]) -> None:
        self._manifest = manifest
        self._clock = clock
        self._first: int | None = None
        self._last: int | None = None
        self._unsettled_since: float | None = None

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        match event, fields:
            case "epoch_final", {"epoch": int(epoch)}:
                self._last = epoch if self._last is None else max(epoch, self._last)
                self._unsettled_since = None

    def facts(self) -> SettlementFacts:
        """Return how many epochs have ended since the last final one, or since the start if that is later."""
        now, manifest = trio.current_time(), self._manifest
        current = present_epoch(manifest, self._clock())
        self._first = current if self._first is None else self._first
        settled = self._first - 1 if self._last is None else max(self._last, self._first - 1)
        epochs = current - 1 - settled
        if epochs <= 0:
            self._unsettled_since = None
            return SettlementFacts(0, self._last)
        self._unsettled_since = now if self._unsettled_since is None else self._unsettled_since
        lasts = now - self._unsettled_since >= _SETTLING_SECONDS
        return SettlementFacts(epochs if lasts else 0, self._last)


class PrivateWatch:
    """Whether the present rounds are shared, from the node's events."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._why: str | None = None

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        match event:
            case "training_privately":
                self._since = trio.current_time()
            case "training_shared":
                self._since = self._why = None
            case "ledger_error" if str(fields["text"]).startswith(_WAITS):
                self._why = str(fields["text"])
            case "epoch":
                self._why = None

    def facts(self) -> PrivateFacts | None:
        """Return since when rounds are not shared, and what the node waits for; None if they are."""
        return None if self._since is None else PrivateFacts(trio.current_time() - self._since, self._why)


class StepWatch:
    """The last training steps, from the node's events."""

    def __init__(self) -> None:
        self._undone: deque[bool] = deque(maxlen=STEPS)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event of the node."""
        if event == "step" and "undone" in fields:
            self._undone.append(bool(fields["undone"]))

    def facts(self) -> StepFacts:
        """Return the outcomes of the last steps."""
        return StepFacts(len(self._undone), sum(self._undone))
