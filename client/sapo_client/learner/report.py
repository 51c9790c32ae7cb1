"""What a training step tells about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of the learner.

    Attributes:
        step: number of the step, from 1.
        loss: the surrogate before the last update; 0 where no group had an advantage.
        mean_reward: over all groups of the batch, external ones included (the paper's figure).
        local_reward: over the node's own groups alone (the honest one); NaN-free: 0 where there are none.
        external_reward: over external groups alone.
        local_groups: own groups in the batch.
        external_groups: groups of other nodes in the batch.
        external_weight: mean likelihood weight of their trained completions, 0 to 1; 1 where there are none.
        external_weights: the same for each external group, in the batch's order.
        skipped_groups: groups without advantage, which were not computed.
        reencoded_groups: own groups whose sampled tokens were gone, trained like external text.
        tokens: completion tokens that were trained.
        gradient_norm: before clipping.
        clipped_share: share of trained tokens outside the clip range.
        entropy: mean surprise of own sampled tokens in nats; a fall to 0 is a collapse.
        rolled_back: the step met a number that is not finite and was undone.
        rollbacks: how many steps were, since the learner was first started.
        halvings: how often memory ran out since the learner was started; each halved the micro-batch.
        seconds: wall time of the step.
    """

    step: int
    loss: float
    mean_reward: float
    local_reward: float
    external_reward: float
    local_groups: int
    external_groups: int
    external_weight: float
    external_weights: tuple[float, ...]
    skipped_groups: int
    reencoded_groups: int
    tokens: int
    gradient_norm: float
    clipped_share: float
    entropy: float
    rolled_back: bool
    rollbacks: int
    halvings: int
    seconds: float
