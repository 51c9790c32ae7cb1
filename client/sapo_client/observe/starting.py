"""A node that has not started, as the lock of its data directory tells of it.

The lock tells it because it takes no further space on a full disk, and says nothing once its holder is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sapo_client import locks
from sapo_client.errors import ExitCode, SapoError
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.paths import DataDir

_HINTS: Final = {
    FindingCode.SERVER_AWAY: "see that the server runs, and that learner.endpoint is its address",
    FindingCode.DISK_FULL: "free some space",
}

_NOTE: Final = "waits_for"
"""Name of what is waited for in the file of the lock."""


@dataclass(frozen=True, slots=True)
class AwaitedStart:
    """What a start waits for.

    Attributes:
        why: it cannot start, in words.
        has_run: whether it had started before.
    """

    code: FindingCode
    why: str
    has_run: bool = False

    @property
    def finding(self) -> HealthFinding:
        """What is said of it."""
        state = "has stopped" if self.has_run else "has not started"
        hint = f"{_HINTS[self.code]}: the start is tried again at least once a minute"
        return HealthFinding(self.code, FindingLevel.ERROR, f"the node {state}: {self.why}", hint)

    def to_note(self) -> Mapping[str, Any]:
        """Return what the holder of a data directory's lock says while it waits."""
        return {_NOTE: {"code": self.code, "why": self.why, "has_run": self.has_run}}


@dataclass(frozen=True, slots=True)
class StartingNode:
    """A process that holds a data directory and does not answer yet, or that hangs.

    Attributes:
        name: of the process, in words.
        waits_for: what it waits for; none if it is under way, or cannot say it.
    """

    data: DataDir
    name: str
    waits_for: AwaitedStart | None

    @property
    def error(self) -> SapoError:
        """What a command says that wants an answer of it."""
        folder = self.data.root
        if (awaited := self.waits_for) is None:
            text = f"a node is starting in {folder}, or hangs ({self.name}): it does not answer yet"
            hint = f"ask again in a minute; if it still does not answer, see {self.data.log}"
        else:
            text = f"a node is starting in {folder} ({self.name}) and waits: {awaited.why}"
            hint = awaited.finding.hint
        return SapoError(text, hint=hint, exit_code=ExitCode.NETWORK)


def starting_node(data: DataDir) -> StartingNode | None:
    """Return the process that holds a data directory; none if nobody does.

    Only for who has asked it before, without an answer.
    """
    try:
        holder = locks.holder(data.lock)
    except OSError:  # the directory is another user's
        return None
    return None if holder is None else StartingNode(data, holder.name, _parse(holder.note))


def _parse(note: Mapping[str, Any]) -> AwaitedStart | None:
    """Return what a note says that a start waits for; none if it says nothing, or is of another version."""
    try:
        awaited = note[_NOTE]
        code, why, has_run = FindingCode(awaited["code"]), str(awaited["why"]), bool(awaited["has_run"])
    except (KeyError, TypeError, ValueError):
        return None
    return AwaitedStart(code, why, has_run) if code in _HINTS else None
