"""How often a node asks the chain about postings. Pure.

Each look is several questions to every endpoint, by all nodes of a swarm. Public endpoints serve a stranger
some ten thousand questions a day, so a node looks as often as windows and turns need and no more.
"""

from __future__ import annotations

import math
from typing import Final

LOOKS_PER_WINDOW: Final = 60
LOOKS_PER_GRACE: Final = 16

LONGEST_PAUSE_SECONDS: Final = 30.0
"""The grace of long epochs: nothing that others wait for takes longer."""


def watching_pause_seconds(
    challenge_seconds: float, least_seconds: float, until_due_seconds: float = math.inf
) -> float:
    """Return the pause between two looks at what is posted.

    Args:
        challenge_seconds: for which a posting can be challenged.
        least_seconds: the shortest pause.
        until_due_seconds: time until a node has something to do itself, which it does not sleep over.
    """
    return max(
        least_seconds, min(LONGEST_PAUSE_SECONDS, challenge_seconds / LOOKS_PER_WINDOW, until_due_seconds)
    )


def settling_pause_seconds(grace_seconds: float, least_seconds: float) -> float:
    """Return the pause between two looks of an auditor while an ended epoch waits to be posted.

    Args:
        grace_seconds: for which auditors wait for each other in a step.
        least_seconds: the pause where epochs are short.
    """
    return max(least_seconds, grace_seconds / LOOKS_PER_GRACE)
