"""Callbacks on a separate thread, so that a slow one never delays a node."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Full, Queue
from typing import Final, TypeVar

import outcome

T = TypeVar("T")

WAITING: Final = 10_000
"""Calls that may wait; further ones are dropped and counted."""


class CallbackThread:
    """Calls functions one after another, in the order in which they were queued.

    Args:
        failed: called once, on this thread, when a function raises; no function is called afterwards.

    Attributes:
        missed: calls that were dropped because too many waited.
    """

    def __init__(self, failed: Callable[[], None]) -> None:
        self._calls: Queue[Callable[[], object] | None] = Queue(WAITING)
        self._failed = failed
        self._failure: outcome.Error | None = None
        self._thread = threading.Thread(target=self._run, name="sapo-callbacks", daemon=True)
        self.missed = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is one of the functions."""
        return threading.current_thread() is self._thread

    def put(self, function: Callable[[T], object], value: T) -> None:
        """Queue a call of a function; never blocks."""
        try:
            self._calls.put_nowait(partial(function, value))
        except Full:
            self.missed += 1

    def close(self) -> None:
        """Return once all queued calls were made."""
        self._calls.put(None)
        self._thread.join()

    def raise_failure(self) -> None:
        """Raise what a function raised, if one did."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            failure.unwrap()

    def _run(self) -> None:
        broken = False
        while (call := self._calls.get()) is not None:
            if broken:
                continue
            result = outcome.capture(call)
            if isinstance(result, outcome.Error):
                self._failure, broken = result, True
                self._failed()
