"""The status line that a node prints per round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """Results of one round."""

    round: int
    step: int
    reward: float  # mean over the node's own completions, 0..1
    reward_change: float | None  # difference to the trend so far; none in the first round
    pool: int  # verified rollouts of others in the pool
    pool_peers: int  # their authors
    own_groups: int
    external_groups: int
    refused_share: float  # of the messages of this round, 0..1
    round_seconds: float
    mismatch: float = 0.0  # between sampler and trainer, nats per token
    age: float = 0.0  # of the batch's own groups: steps since they were sampled
    pool_age: float = 0.0  # of the pool: steps of this node since its rollouts arrived
    ranks: int = 1  # processes that computed the step
    is_private: bool = False  # nothing of this round is signed, shared or paid: a finding says why

    def line(self, *, alone: bool = False) -> str:
        """Return the status line; the order of its fields never changes.

        Args:
            alone: leave out what only a node of a swarm has: others' rollouts and messages.
        """
        change = "first" if self.reward_change is None else f"{self.reward_change:+.2f}"
        private = ("not shared: `sapo status` says why",) if self.is_private else ()
        peers = "1 peer" if self.pool_peers == 1 else f"{self.pool_peers} peers"
        return "  ".join(
            (
                f"round {self.round}",
                f"step {self.step}",
                f"reward {self.reward:.2f} ({change})",
                *(() if alone else (f"pool {self.pool} from {peers}",)),
                f"sampled {self.own_groups}" + ("" if alone else f"+{self.external_groups}"),
                *(() if alone else (f"refused {self.refused_share:.0%}".replace("%", " %"),)),
                f"{self.round_seconds:.1f} s",
                *private,
            )
        )
