"""Repeated starts of a node whose model's server does not answer yet or whose disk is full.

What is configured right needs nobody to act later, so the process stays, says what it waits for, and tries
again. A service manager would give up after some restarts, and does not restart at all after exit code 8.
The same holds for a node that had started, and which such a lack has ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, TypeVar

from sapo_client.errors import SapoError
from sapo_client.locks import Lock
from sapo_client.node.roles import Roles, StartedNode
from sapo_client.observe.findings import FindingCode, HealthFinding
from sapo_client.observe.health import WAITED_FOR
from sapo_client.observe.printed import PrintedFindings
from sapo_client.observe.service_manager import ServiceManager, service_manager
from sapo_client.observe.starting import AwaitedStart, StopRequests
from sapo_client.observe.terminal import say

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 5.0
MAX_PAUSE_SECONDS: Final = 60.0
"""Between two tries; each pause is twice as long as the one before. A try imports torch in a new process."""


class Waiting:
    """Tries a start again until it succeeds, or fails for a reason that does not pass by itself.

    Args:
        lock: of the data directory: it is held between the tries, and says what is waited for.
        stops: requests to end the waiting; None if there are none.
        show: takes a line for the terminal.
        told: takes what is waited for, after each try.
        manager: is told what is waited for, and to be patient.
        sleep: waits for seconds.
        clock: returns seconds that never go back.
        end: how the waiting is ended, in words.
        opened: called once the parts of a node exist, before its services start.
    """

    def __init__(
        self,
        lock: Lock,
        *,
        stops: StopRequests | None = None,
        show: Callable[[str], None] = say,
        told: Callable[[HealthFinding], None] = lambda _: None,
        manager: ServiceManager | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        end: str = "Ctrl-C ends it",
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        self.lock: Final = lock
        self._stops = stops
        self._opened = opened
        self._show = show
        self._told = told
        self._manager = manager or service_manager()
        self._sleep = sleep
        self._clock = clock
        self._end = end
        self._printed = PrintedFindings()
        self._has_run = False
        self._pause_seconds = FIRST_PAUSE_SECONDS

    def roles(self, roles: Roles) -> Roles:
        """Return the same roles, of a node whose start is waited for until it has started."""

        def opened() -> None:
            roles.opened()
            self._opened()
            if self._stops is not None:
                self._stops.heed(self.lock)

        def started(node: StartedNode) -> None:
            self._has_run = True
            self._pause_seconds = FIRST_PAUSE_SECONDS
            self.lock.note({})
            for line in self._printed.lines([], self._clock()):
                self._show(line)
            roles.started(node)
            if self._is_stop_requested():  # since the last look
                node.request_stop()

        return replace(roles, opened=opened, is_stop_requested=self._is_stop_requested, started=started)

    def _is_stop_requested(self) -> bool:
        return self._stops is not None and self._stops.take()

    def through(self, start: Callable[[], T]) -> T:
        """Return the result of a start, repeated until it succeeds.

        Raises:
            SapoError: it fails for another reason, or another process uses the data directory.
            StopRequested: it was asked to end before it started.
        """
        self._pause_seconds = FIRST_PAUSE_SECONDS
        with ExitStack() as held:
            while True:
                try:
                    return start()
                except SapoError as error:
                    if not error.transient or error.finding not in WAITED_FOR:
                        raise
                    awaited = AwaitedStart(FindingCode(error.finding), error.text, self._has_run)
                self._hold(held, awaited)  # first: a notified process may query the node at once
                self._tell(awaited.finding)
                self._pause()
                self._pause_seconds = min(2 * self._pause_seconds, MAX_PAUSE_SECONDS)

    def _pause(self) -> None:
        if self._stops is None:
            self._sleep(self._pause_seconds)
        else:
            self._stops.wait(self._pause_seconds, self._sleep)

    def _tell(self, finding: HealthFinding) -> None:
        finding = replace(finding, hint=f"{finding.hint}, {self._end}")
        self._manager.starts_later(finding)
        self._told(finding)
        for line in self._printed.lines([finding], self._clock()):
            self._show(line)

    def _hold(self, held: ExitStack, awaited: AwaitedStart) -> None:
        """Hold the lock until the end of the tries, and say in it what is waited for."""
        try:
            if not self.lock.is_held:
                held.enter_context(self.lock.held())
                if self._stops is not None:
                    self._stops.heed(self.lock)
            self.lock.note(awaited.to_note())
        except SapoError as error:
            if not error.transient:
                raise
