"""How often a node reads the postings on the chain. Pure functions.

Each reading is several RPC requests to every endpoint, from every node of a swarm. Public endpoints serve a
client some ten thousand requests a day, so a node reads only as often as challenge windows and turns require.
"""

from __future__ import annotations

import math
from typing import Final

LOOKS_PER_WINDOW: Final = 60
LOOKS_PER_GRACE: Final = 16

MAX_PAUSE_SECONDS: Final = 30.0
"""The grace of long epochs, the longest time for which other nodes wait in a step."""


def watching_pause_seconds(
    challenge_seconds: float, min_seconds: float, until_due_seconds: float = math.inf
) -> float:
    """Return the seconds between two readings of the postings.

    Args:
        challenge_seconds: time for which a posting can be challenged.
        min_seconds: the shortest pause.
        until_due_seconds: time until this node has to act itself; the pause is not longer.
    """
    return max(min_seconds, min(MAX_PAUSE_SECONDS, challenge_seconds / LOOKS_PER_WINDOW, until_due_seconds))


def settling_pause_seconds(grace_seconds: float, min_seconds: float) -> float:
    """Return the seconds between two readings by an auditor while an ended epoch is not posted yet.

    Args:
        grace_seconds: time for which auditors wait for each other in a step.
        min_seconds: the shortest pause.
    """
    return max(min_seconds, grace_seconds / LOOKS_PER_GRACE)
