"""The state of a node that has not started yet, as recorded in the lock file of its data directory.

The lock file is used because writing to it takes no further space on a full disk, and because the record is
void once the process is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sapo_client import locks
from sapo_client.errors import ExitCode, SapoError
from sapo_client.locks import Lock
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.paths import DataDir

_HINTS: Final = {
    FindingCode.SERVER_AWAY: "see that the server runs, and that learner.endpoint is its address",
    FindingCode.DISK_FULL: "free some space",
    FindingCode.LIMIT_REACHED: "raise the limit of open files (ulimit -n), of processes or of memory",
}

_NOTE: Final = "waits_for"
"""Key of the record in the lock file."""


LOOK_SECONDS: Final = 1.0
"""Between two looks of a waiting process for a request to stop."""


HEEDS_STOPS: Final[Mapping[str, Any]] = {"heeds_stops": True}
"""Record in the lock file of a process that looks for requests to stop while its node starts."""


STOPPED_BEFORE_START: Final = "stopped by `sapo stop` before it started"


class StopRequested(Exception):
    """A start was asked to end."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class StopRequests:
    """Requests to end a start, which has no control API: a file that the process looks for.

    Args:
        data: directory of the node.
        is_watched: whether a thread looks for them now, and interrupts whoever waits.
    """

    data: DataDir
    is_watched: Callable[[], bool] = _never

    def heed(self, lock: Lock) -> None:
        """Note in the held lock that requests are looked for from now on; forget one of before."""
        if HEEDS_STOPS.items() <= lock.noted.items():
            return
        self.forget()
        lock.note(HEEDS_STOPS)

    def ask(self) -> None:
        """Ask the process that holds the directory to end.

        Raises:
            SapoError: the file cannot be created, as on some full disks.
        """
        try:
            self.data.stop_request.touch()
        except OSError as error:
            raise SapoError(
                f"cannot ask the node that starts to stop: {self.data.stop_request}: {error.strerror}",
                hint="press Ctrl-C where it runs, or end its process (kill), which `sapo status` names",
                exit_code=ExitCode.DATA,
            ) from error

    def forget(self) -> None:
        """Remove a request that was meant for an earlier process, or is served."""
        self.data.stop_request.unlink(missing_ok=True)

    def is_there(self) -> bool:
        """Whether the process was asked to end."""
        return self.data.stop_request.exists()

    def take(self) -> bool:
        """Whether the process was asked to end; the request is then removed."""
        if is_there := self.is_there():
            self.forget()
        return is_there

    def wait(self, seconds: float, sleep: Callable[[float], object] = time.sleep) -> None:
        """Wait, and look for a request meanwhile.

        Raises:
            StopRequested: there is one.
        """
        left = seconds
        while self.is_watched() or not self.take():
            if left <= 0:
                return
            sleep(min(LOOK_SECONDS, left))
            left -= LOOK_SECONDS
        raise StopRequested


@dataclass(frozen=True, slots=True)
class AwaitedStart:
    """The reason why a start waits.

    Attributes:
        why: the reason as a sentence.
        has_run: whether the node had started before.
    """

    code: FindingCode
    why: str
    has_run: bool = False

    @property
    def finding(self) -> HealthFinding:
        """The health finding of the node meanwhile."""
        state = "has stopped" if self.has_run else "has not started"
        hint = f"{_HINTS[self.code]}: the start is tried again at least once a minute"
        return HealthFinding(self.code, FindingLevel.ERROR, f"the node {state}: {self.why}", hint)

    def to_note(self) -> Mapping[str, Any]:
        """Return the record for the lock file."""
        return {**HEEDS_STOPS, _NOTE: {"code": self.code, "why": self.why, "has_run": self.has_run}}


@dataclass(frozen=True, slots=True)
class StartingNode:
    """A process that holds a data directory and does not answer yet, or that hangs.

    Attributes:
        name: description of the process.
        waits_for: the reason why it waits; None if it does not wait, or has recorded none.
        heeds_stops: whether it looks for requests to stop.
    """

    data: DataDir
    name: str
    waits_for: AwaitedStart | None
    heeds_stops: bool = False

    @property
    def error(self) -> SapoError:
        """The error of a command to which this process does not answer."""
        folder = self.data.root
        if (awaited := self.waits_for) is None:
            text = f"a node is starting in {folder}, or hangs ({self.name}): it does not answer yet"
            hint = f"ask again in a minute; if it still does not answer, see {self.data.log}"
        else:
            text = f"a node is starting in {folder} ({self.name}) and waits: {awaited.why}"
            hint = awaited.finding.hint
        return SapoError(text, hint=hint, exit_code=ExitCode.NETWORK)


def starting_node(data: DataDir) -> StartingNode | None:
    """Return the process that holds a data directory; None if no process does.

    Call it only after a request to the node has failed: a node that answers holds its directory, too.
    """
    try:
        holder = locks.holder(data.lock)
    except OSError:  # the directory is another user's
        return None
    if holder is None:
        return None
    awaited = _parse(holder.note)
    heeds = awaited is not None or HEEDS_STOPS.items() <= holder.note.items()
    return StartingNode(data, holder.name, awaited, heeds)


def _parse(note: Mapping[str, Any]) -> AwaitedStart | None:
    """Return the reason in the record of a lock file; None if it has none, or is of another version."""
    try:
        awaited = note[_NOTE]
        code, why, has_run = FindingCode(awaited["code"]), str(awaited["why"]), bool(awaited["has_run"])
    except (KeyError, TypeError, ValueError):
        return None
    return AwaitedStart(code, why, has_run) if code in _HINTS else None
