"""How often a node asks the chain about postings. Pure.

Each look is several questions to every endpoint, by all nodes of a swarm. Public endpoints serve a stranger
some ten thousand questions a day, so a node looks as often as windows and turns need and no more.
"""

from __future__ import annotations

from typing import Final

LOOKS_PER_WINDOW: Final = 60
LOOKS_PER_GRACE: Final = 16

LONGEST_PAUSE_SECONDS: Final = 30.0
"""The grace of long epochs: nothing that others wait for takes longer."""


def watching_pause_seconds(challenge_seconds: float, least_seconds: float) -> float:
    """Return the pause between two looks at what is posted.

    Args:
        challenge_seconds: for which a posting can be challenged.
        least_seconds: the pause where that window is short.
    """
    return min(LONGEST_PAUSE_SECONDS, max(least_seconds, challenge_seconds / LOOKS_PER_WINDOW))


def settling_pause_seconds(grace_seconds: float, least_seconds: float) -> float:
    """Return the pause between two looks of an auditor while an ended epoch waits to be posted.

    Args:
        grace_seconds: for which auditors wait for each other in a step.
        least_seconds: the pause where epochs are short.
    """
    return max(least_seconds, grace_seconds / LOOKS_PER_GRACE)


def until(due_seconds: float, *, now_seconds: float, pause_seconds: float, least_seconds: float) -> float:
    """Return a pause that ends when something is due, if that is sooner."""
    return max(least_seconds, min(pause_seconds, due_seconds - now_seconds))
