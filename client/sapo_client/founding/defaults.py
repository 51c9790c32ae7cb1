"""Settings that every swarm founded by `sapo` starts with: limits, ledger budget, challenge window, tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sapo_protocol.manifest import Limits

if TYPE_CHECKING:
    pass

LIMITS: Final = Limits(slots_per_epoch=1024, max_completions=8, points_per_epoch=512)
"""More slots than a small policy fills in a short epoch: a test swarm must not wait for quota."""

ACCOUNTS_AT_CAP: Final = 64
"""Accounts that may all earn their cap in one epoch; `sapo testnet up` starts at most as many nodes."""

EPOCH_BUDGET_POINTS: Final = LIMITS.points_per_epoch * ACCOUNTS_AT_CAP
"""Most points that one epoch may grant."""

AUDITORS: Final = 4
"""Auditors of a swarm on one machine: the fewest of which one may lie or be down, and the others agree."""

CHALLENGE_SHARE: Final = 0.1
"""Part of an epoch during which a posted root can be challenged: every auditor checks once a second."""


def challenge_seconds(epoch_seconds: int) -> int:
    """Return how long a posted root can be challenged."""
    return max(1, round(CHALLENGE_SHARE * epoch_seconds))
