"""`SapoError`, the error that users see, and the meaning of each exit code."""

from __future__ import annotations

from enum import IntEnum

from sapo_protocol.errors import LaterReleaseError
from sapo_verification.errors import NewerDatabaseError, UnusableDatabaseError


class ExitCode(IntEnum):
    """Documented exit codes of `sapo`."""

    DONE = 0
    BUG = 1
    USAGE = 2
    CONFIG = 3
    KEYSTORE = 4
    NETWORK = 5
    LEDGER = 6
    VERIFICATION = 7
    DATA = 8
    INTERRUPTED = 130  # SIGINT, after a clean drain
    PIPE = 141  # as a program that SIGPIPE ended
    TERMINATED = 143  # SIGTERM or SIGHUP, after a clean drain


NEWER_DATABASE_HINT = "install the newest version of sapo, or use another data directory with --data-dir"
REPAIR_HINT = "stop the node, then keep what can be read: sapo repair (with the same --data-dir)"
UNREADABLE_HINT = "correct the permissions of the data directory, or use another one with --data-dir"

MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.BUG: "unexpected error: a bug, please report it",
    ExitCode.USAGE: "wrong usage of the command line",
    ExitCode.CONFIG: "configuration is missing, unreadable or refused",
    ExitCode.KEYSTORE: "identity or passphrase is missing, refused or wrong",
    ExitCode.NETWORK: "node or network not reachable",
    ExitCode.LEDGER: "ledger error",
    ExitCode.VERIFICATION: "a verification or a check failed (`verify`, `doctor`)",
    ExitCode.DATA: "checkpoint or data directory unusable",
    ExitCode.INTERRUPTED: "stopped by SIGINT after a clean drain",
    ExitCode.PIPE: "the program that read the output, as `head`, has ended",
    ExitCode.TERMINATED: "stopped by SIGTERM or SIGHUP after a clean drain",
}


class SapoError(Exception):
    """A failure reported to the user: what happened, what to do about it, and the exit code.

    A ``transient`` error ends a command, but not a running node, which waits and tries again.

    Attributes:
        text: what happened, in one sentence.
        hint: what to do about it; a traceback shows it, too.
        exit_code: with which a command ends, one of ``ExitCode``.
        finding: code of the health finding that a waiting node reports; None if another finding covers it.
    """

    transient = False
    finding: str | None = None

    def __init__(
        self,
        text: str,
        *,
        hint: str,
        exit_code: int = ExitCode.BUG,
        transient: bool = False,
        finding: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.exit_code = int(exit_code)
        self.transient = transient or self.transient
        self.finding = finding or self.finding
        self.add_note(f"hint: {hint}")  # a script that does not catch it shows the hint below the error

    def __str__(self) -> str:
        return self.text


def database_error(error: BaseException) -> SapoError | None:
    """Return the ``SapoError`` for a database that this release cannot use; None for any other error."""
    if isinstance(error, NewerDatabaseError):
        return SapoError(str(error), hint=NEWER_DATABASE_HINT, exit_code=ExitCode.DATA)
    if isinstance(error, UnusableDatabaseError):
        hint = REPAIR_HINT if error.damaged else UNREADABLE_HINT
        return SapoError(str(error), hint=hint, exit_code=ExitCode.DATA)
    return None


def later_hint(error: BaseException) -> str | None:
    """Return the hint for a manifest that may be of a later release; None for one that is damaged."""
    if not isinstance(error, LaterReleaseError):
        return None
    return (
        "install the newest release of sapo; if that does not help, ask whoever runs the swarm for the"
        " manifest again: it must not be edited"
    )
