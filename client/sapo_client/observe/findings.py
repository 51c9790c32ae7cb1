"""Findings of a health assessment: codes, levels and texts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UNREACHABLE_HINT: Final = (
    "switch UPnP on in the router, or forward the TCP port of swarm.listen there to the same port of this"
    " machine and allow it in the firewall; a swarm needs nodes that can be reached"
)
"""Hint for nodes to which peers cannot connect."""

ISLANDS_HINT: Final = (
    "keep the node connected: it reads the ledger's last final epochs, and asks peers for the proposals"
    " behind them; if the RPC endpoint is behind its chain, name another one with --rpc"
)
"""Hint for nodes that do not know the number of islands."""


class FindingLevel(StrEnum):
    """Severity of a finding: a node with an error is not healthy."""

    ERROR = "error"
    WARNING = "warning"


class FindingCode(StrEnum):
    """Stable name of each finding."""

    NO_ROUND = "no_round"
    LEARNER_HUNG = "learner_hung"
    LEARNER_RESTARTED = "learner_restarted"
    LEARNER_MOVED = "learner_moved"
    POLICY_ROLLED_BACK = "policy_rolled_back"
    POLICY_RESET = "policy_reset"
    SAMPLER_MISMATCH = "sampler_mismatch"
    STEPS_UNDONE = "steps_undone"
    OWN_WITHHELD = "own_withheld"
    NO_ADVANTAGE = "no_advantage"
    FAMILIES_SKIPPED = "families_skipped"
    NODE_BUSY = "node_busy"
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    CHECKPOINT_FAILED = "checkpoint_failed"
    GOOD_POLICY_LOST = "good_policy_lost"
    SERVER_AWAY = "server_away"
    DISK_FULL = "disk_full"
    LIMIT_REACHED = "limit_reached"
    NO_COINS = "no_coins"
    NOT_REGISTERED = "not_registered"
    NO_BOND = "no_bond"
    BONDS_UNREAD = "bonds_unread"
    AUDITOR_BOND = "auditor_bond"
    APPROVED_ELSEWHERE = "approved_elsewhere"
    TREASURY_EMPTY = "treasury_empty"
    CHANGE_UNFOLLOWED = "change_unfollowed"
    TRANSACTION_STUCK = "transaction_stuck"
    WRONG_CHAIN = "wrong_chain"
    CHAIN_SILENT = "chain_silent"
    CHAIN_STALLED = "chain_stalled"
    NOT_SETTLED = "not_settled"
    NOT_SHARING = "not_sharing"
    CLOCK_OFF = "clock_off"
    CLOCK_JUMPED = "clock_jumped"
    SIGNED_AHEAD = "signed_ahead"
    DISK_LOW = "disk_low"
    ROLLOUTS_DROPPED = "rollouts_dropped"
    NO_PEERS = "no_peers"
    PEERS_REFUSE = "peers_refuse"
    UNREACHABLE = "unreachable"
    ISLANDS_UNKNOWN = "islands_unknown"
    REFUSAL_RATE = "refusal_rate"
    SERVICE_FAILED = "service_failed"
    PACKAGE_REPLACED = "package_replaced"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One problem of a node.

    Attributes:
        code: its name, one of those in docs/reference/health.md.
        level: error or warning; a node with an error is not healthy.
        text: one sentence that states the problem.
        hint: the action that the operator can take.
    """

    code: FindingCode
    level: FindingLevel
    text: str
    hint: str

    def line(self) -> str:
        """Return the finding as one line of text."""
        return f"{self.level}: {self.text} ({self.code}); {self.hint}"


def duration_text(seconds: float) -> str:
    """Return a duration as text."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
