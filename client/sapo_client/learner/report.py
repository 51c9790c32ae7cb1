"""The report of a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TextValue = tuple[float, tuple[float | None, ...]]
"""Value of a text's steps: the fields of ``sampling.step_values.StepValue`` in order."""


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
        external_weight: mean weight of their completions, 0 to 1; 1 if there are none. It follows from their
            likelihood, and is 0 where the own groups' gradient does not agree.
        external_weights: the same for each external group, in the batch's order.
        skipped_groups: groups without advantage, which are not computed unless there is a KL term.
        reencoded_groups: own groups whose sampled token ids were lost, trained like external text.
        tokens: completion tokens that were trained.
        gradient_norm: before gradient clipping.
        clipped_share: share of trained tokens whose ratio is outside the clip range.
        mismatch: of the own completions' sampling log-probabilities with the trainer's, per token
            (``losses/mismatch.py``).
        masked: own completions that were not trained, because their sequence ratio exceeds the cap.
        age: steps between the sampling of own groups and this step, mean over them.
        entropy: mean surprisal of own sampled tokens in nats per token; a fall to 0 is a collapse.
        rolled_back: whether a loss or gradient was not finite and its update, of the groups or of the
            demonstrations, was undone.
        rollbacks: number of steps with such an update since the learner was first started.
        halvings: how often memory ran out since the learner was started; each halved the micro-batch.
        seconds: wall time of the step.
        demonstrations: demonstrations that were trained.
        demonstrations_held: demonstrations in the buffer after the step.
        step_values: what the steps of each new demonstration, before it was trained, and of each judged text
            were worth: likelihood and dependence (``sampling.step_values.StepValue``); None for one without
            steps or one that was left out.
        own_answers_held: own right answers kept for rehearsal after the step.
        own_answers_missing: how many more own right answers are needed for the trained demonstrations; 0
            without any.
        demonstration_loss: mean negative log-likelihood of the trained demonstrations before their update, in
            nats per token, at temperature 1 and without weights; 0 if there were none.
        demonstration_families: number of trained demonstrations by the family's index, as text.
        has_candidate: whether there are weights beside the policy's that demonstrations have trained for long
            enough to be compared; once they are better they are the policy's (``imitation/averaging.py``).
        ranks: processes that made the step together.
        too_long: groups that were not trained, because prompt and answer exceed the model's window.
        template_raised: groups that were not trained, because the chat template raises for their prompt.
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
    mismatch: float = 0.0
    masked: int = 0
    age: float = 0.0
    demonstrations: int = 0
    demonstrations_held: int = 0
    own_answers_held: int = 0
    own_answers_missing: int = 0
    step_values: Sequence[TextValue | None] = ()
    demonstration_loss: float = 0.0
    demonstration_families: Mapping[str, int] = field(default_factory=dict)
    has_candidate: bool = False
    ranks: int = 1
    too_long: int = 0
    template_raised: int = 0
