"""The arguments of callbacks: rollouts that this node scored, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sapo_verification.observer import Observer

if TYPE_CHECKING:
    from sapo_protocol.suite import Suite
    from sapo_verification.types import VerifiedRollout


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """One task with a group of answers, and the rewards that this node derived for them.

    Attributes:
        content_id: hex id of the signed content.
        account: the account that is credited, as 0x and 40 hex digits.
        node: hex id of the node that signed it.
        family: name of the task's family.
        epoch: number of the epoch.
        slot: number of the task among the account's tasks of the epoch.
        prompt: the task as the policy saw it, derived here.
        completions: the answers; bytes that are no UTF-8 are replaced.
        rewards: one per completion, 0.0 or 1.0, scored here.
    """

    content_id: str
    account: str
    node: str
    family: str
    epoch: int
    slot: int
    prompt: str
    completions: tuple[str, ...]
    rewards: tuple[float, ...]

    @property
    def mean_reward(self) -> float:
        """The share of completions that are right."""
        return sum(self.rewards) / len(self.rewards)


def scored(rollout: VerifiedRollout, suite: Suite) -> ScoredRollout:
    """Return a verified rollout as plain values; of a suite that has its family."""
    signed = rollout.admitted.rollout
    return ScoredRollout(
        content_id=rollout.content_id.hex(),
        account=str(rollout.account),
        node=signed.node.hex(),
        family=suite.families[signed.family].name,
        epoch=signed.epoch,
        slot=signed.slot,
        prompt=rollout.prompt,
        completions=tuple(each.decode("utf-8", "replace") for each in rollout.completions),
        rewards=rollout.rewards,
    )


class RolloutObserver(Observer):
    """Passes the rollouts that the engine scores to callbacks: own ones and those of others separately.

    Args:
        suite: returns the families that the node knows now; successors of the swarm's terms add some.
        own: the node's own account.
    """

    def __init__(
        self,
        suite: Callable[[], Suite],
        own: str,
        *,
        on_own: Callable[[ScoredRollout], None],
        on_external: Callable[[ScoredRollout], None],
    ) -> None:
        self._suite_of = suite
        self._suite = suite()
        self._own = own
        self._on_own = on_own
        self._on_external = on_external

    def verified(self, rollout: VerifiedRollout) -> None:
        """Pass on a rollout that was scored for the first time."""
        if rollout.admitted.rollout.family >= len(self._suite.families):
            self._suite = self._suite_of()
        plain = scored(rollout, self._suite)
        (self._on_own if plain.account == self._own else self._on_external)(plain)
