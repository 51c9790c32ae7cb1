"""A start that is waited for: the model's server does not answer yet, or the disk is full.

What is configured right needs nobody to act later, so the process stays, says what it waits for, and tries
again. A service manager would give up after some restarts, and does not restart at all after exit code 8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from sapo_client.errors import SapoError
from sapo_client.node.roles import Roles, StartedNode
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import WAITED_FOR
from sapo_client.observe.said import SaidFindings
from sapo_client.observe.service_manager import ServiceManager, service_manager
from sapo_client.observe.terminal import say

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Between two tries; each pause is twice as long as the one before. A try imports torch in a new process."""

_HINTS: Final = {
    FindingCode.SERVER_AWAY: "see that the server runs, and that learner.endpoint is its address",
    FindingCode.DISK_FULL: "free some space",
}


class Waiting:
    """Tries a start again until it succeeds, or fails for a reason that does not pass by itself.

    Args:
        show: takes a line for the terminal.
        manager: is told what is waited for, and to be patient.
        sleep: waits for seconds.
        clock: returns seconds that never go back.
    """

    def __init__(
        self,
        *,
        show: Callable[[str], None] = say,
        manager: ServiceManager | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._manager = manager or service_manager()
        self._sleep = sleep
        self._clock = clock
        self._said = SaidFindings()
        self._has_started = False

    def roles(self, roles: Roles) -> Roles:
        """Return the same roles, of a node whose start is waited for until it has started."""

        def started(node: StartedNode) -> None:
            self._has_started = True
            roles.started(node)

        return replace(roles, started=started)

    def through(self, start: Callable[[], T]) -> T:
        """Return what a start returns, after as many tries as it takes.

        Raises:
            SapoError: it fails for another reason, or the node had started before it failed: then the options
                of this start, such as to begin anew, are not those of the next one.
        """
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            try:
                return start()
            except SapoError as error:
                if self._has_started or not error.transient or error.finding not in WAITED_FOR:
                    raise
                self._tell(error.text, FindingCode(error.finding))
            self._sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    def _tell(self, why: str, code: FindingCode) -> None:
        hint = f"{_HINTS[code]}: the start is tried again at least once a minute, Ctrl-C ends it"
        finding = HealthFinding(code, FindingLevel.ERROR, f"the node has not started: {why}", hint)
        self._manager.starts_later(finding)
        for line in self._said.lines([finding], self._clock()):
            self._show(line)
