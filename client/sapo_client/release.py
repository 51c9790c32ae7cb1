"""The release that this process runs, and whether another one was installed in its place meanwhile.

A node starts processes while it runs: its learner after a crash, checkers, a tracker. They load what is
installed then, and two releases do not always understand each other.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from sapo_client.errors import ExitCode, SapoError

DISTRIBUTION: Final = "sapo-swarm"


def installed() -> str | None:
    """Return the release that is installed now; None if there is none, as in the middle of an upgrade."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None


RUNNING: Final = installed()
"""The release that was installed when this process began; None for a tree that is not installed."""


def replaced() -> str | None:
    """Return in one sentence that another release is installed than the one that runs; None if none is."""
    if RUNNING is None or (now := installed()) == RUNNING:
        return None
    if now is None:
        return f"{DISTRIBUTION} {RUNNING} runs here, and it is not installed any more"
    return f"{DISTRIBUTION} {RUNNING} runs here, and {now} was installed in its place"


def require_unreplaced(part: str) -> None:
    """Raise if a part of this node that is to be started would be of another release.

    Args:
        part: of the node, in words.

    Raises:
        SapoError: it would be.
    """
    if (found := replaced()) is not None:
        raise SapoError(
            f"{part} cannot be started beside this node: {found}",
            hint="start the node again: it resumes from its last checkpoint",
            exit_code=ExitCode.NETWORK,
        )
