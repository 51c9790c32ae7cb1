"""Figures of a training step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepReport:
    """Report of one training step.

    Attributes:
        step: number of the step, from 1.
        loss: the loss before the last update; 0 if no group had an advantage.
        mean_reward: over all groups of the batch, external ones included (the paper's figure).
        local_reward: over the node's own groups alone, what this policy earns; 0 if there are none.
        external_reward: over external groups alone; 0 if there are none.
        local_groups: own groups in the batch.
        external_groups: groups of other nodes in the batch.
        external_weight: mean likelihood weight of their trained completions, 0 to 1; 1 if there are none.
        external_weights: the same for each external group, in the batch's order.
        skipped_groups: groups without advantage, which are not computed unless there is a KL term.
        reencoded_groups: own groups whose sampled token ids were lost, trained like external text.
        tokens: completion tokens that were trained.
        gradient_norm: before gradient clipping.
        clipped_share: share of trained tokens whose ratio is outside the clip range.
        entropy: mean surprisal of own sampled tokens in nats per token; a fall to 0 is a collapse.
        rolled_back: whether the step met a loss or gradient that is not finite and was undone.
        rollbacks: steps undone since the learner was first started.
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
