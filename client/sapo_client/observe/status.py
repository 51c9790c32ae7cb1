"""The status line that a node prints per round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """Results of one round.

    Attributes:
        round: rounds of this run, from 1.
        step: training steps of the policy, over all runs.
        reward: mean over the node's own completions, 0 to 1.
        reward_change: difference to the mean of the last rounds; None in the first one.
        pool: verified rollouts of others in the pool.
        pool_peers: their authors.
        own_groups: own groups (a task with all of its completions) in the batch.
        external_groups: groups of others in it.
        refused_share: refused ones among the messages of this round, 0 to 1.
        round_seconds: its duration.
        mismatch: between sampler and trainer, nats per token.
        age: of the batch's own groups: steps since they were sampled.
        pool_age: of the pool: steps of this node since its rollouts arrived.
        ranks: processes that computed the step.
        is_private: nothing of this round is signed, shared or paid: a finding says why.
        is_alone: the node trains alone, so nothing of others is in any field.
    """

    round: int
    step: int
    reward: float
    reward_change: float | None
    pool: int
    pool_peers: int
    own_groups: int
    external_groups: int
    refused_share: float
    round_seconds: float
    mismatch: float = 0.0
    age: float = 0.0
    pool_age: float = 0.0
    ranks: int = 1
    is_private: bool = False
    is_alone: bool = False

    def line(self) -> str:
        """Return the status line; the order of its fields never changes.

        That of a node that trains alone leaves out what only a node of a swarm has.
        """
        alone = self.is_alone
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
