"""Settings that every swarm founded by `sapo` starts with: limits, ledger budget, challenge window, tasks."""

from __future__ import annotations

from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_protocol.manifest import Limits

DEVELOPMENT: Final = frozenset({7_276_001, 1337, 31337})
"""Ids of local chains, the embedded one first, whose block time is not fixed."""

EPOCH_SECONDS: Final = 600
"""Default epoch length, seconds, on a local chain or without a chain."""

LIMITS: Final = Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=512)
"""Slots per epoch: more than a small policy fills in a short epoch, so that a test swarm never waits."""

ACCOUNTS_AT_CAP: Final = 64
"""Accounts that can all earn their cap in one epoch; `sapo testnet up` starts at most as many nodes."""

EPOCH_BUDGET_POINTS: Final = LIMITS.points_per_epoch * ACCOUNTS_AT_CAP
"""Maximum number of points per epoch."""

AUDITORS: Final = 4
"""Auditors of a swarm on one machine: the fewest of which one may lie or be down, and the others agree."""

CHALLENGE_SHARE: Final = 0.1
"""Part of an epoch during which a posted root can be challenged; nodes check it at least 60 times."""


PUBLIC_EPOCH_SECONDS: Final = 7200
PUBLIC_CHALLENGE_SHARE: Final = 0.5
"""As above on a public chain: one hour of a two-hour epoch."""

MIN_CHALLENGE_SECONDS: Final = 600
"""Shortest window for challenges with a block every twelve seconds: half of it for the turns of the possible
senders, and in the other half fees that double every second block."""


def clock_of(chain_id: int, epoch_seconds: int | None, challenge: int | None) -> tuple[int, int]:
    """Return the length of epochs and of the window for challenges of a new swarm, in seconds.

    Args:
        epoch_seconds: the founder's choice; none: ten minutes on a chain of one machine, else two hours.
        challenge: the founder's choice; none: by the length of epochs.

    Raises:
        SapoError: the window is too short for a challenge on this chain, or no shorter than an epoch.
    """
    public = chain_id not in DEVELOPMENT
    length = epoch_seconds or (PUBLIC_EPOCH_SECONDS if public else EPOCH_SECONDS)
    window = challenge or (round(PUBLIC_CHALLENGE_SHARE * length) if public else challenge_seconds(length))
    if window >= length or (public and window < MIN_CHALLENGE_SECONDS):
        raise SapoError(
            f"postings could be challenged for {window} s of an epoch of {length} s",
            hint="choose --challenge-seconds below --epoch-seconds"
            + (f", and at least {MIN_CHALLENGE_SECONDS}: blocks of this chain take time" if public else ""),
            exit_code=ExitCode.USAGE,
        )
    return length, window


def challenge_seconds(epoch_seconds: int) -> int:
    """Return how long a posted root can be challenged."""
    return max(1, round(CHALLENGE_SHARE * epoch_seconds))
