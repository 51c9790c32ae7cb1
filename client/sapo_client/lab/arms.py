"""Arms of an experiment: compositions of a batch and uses of others' rollouts.

All arms have the same update size, I + J groups. As in the paper, every account is trusted, because all are
the experiment's own: the caps of the network's sampler are open, which `sapo join` never allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_client import plugins
from sapo_client.errors import ExitCode, SapoError
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.sampling.text_use import TextUse

OPEN_CAP: Final = 1.0
OPEN_NEWCOMER_CAP: Final = 0.5
"""Share of external groups drawn from newcomers once some accounts have weight."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to mix a batch.

    Attributes:
        local: own groups, I of the paper.
        external: external groups, J of the paper.
        redraws: maximum number of own groups per round that are sampled again because they have no advantage.
        sampler: name of the sampling strategy for external groups.
        text_use: what the external groups are used for.
        learnable_tasks: draw own tasks by how much can be learned from them.
        oracle: demonstrate the generator's own answers instead of those of others.
        agreement: train only those completions of others that agree with the own groups' gradient.
        external_loss: name in ``learner/losses/external.py`` of the loss of others' text in the policy
            gradient.
    """

    name: str
    local: int
    external: int
    redraws: int = 0
    sampler: str = "uniform"
    text_use: TextUse = TextUse.REINFORCE
    learnable_tasks: bool = False
    oracle: bool = False
    agreement: bool = False
    external_loss: str = "reinforce"

    @property
    def hears_others(self) -> bool:
        """Whether the arm uses rollouts of other accounts."""
        return self.external > 0 or (self.text_use.demonstrates and not self.oracle)

    @property
    def policy(self) -> SamplingPolicy:
        """The sampler's settings."""
        return SamplingPolicy(
            local_groups=self.local,
            external_groups=self.external,
            account_cap=OPEN_CAP,
            newcomer_cap=OPEN_NEWCOMER_CAP,
            network_cap=OPEN_CAP,
            strategy=self.sampler,
            text_use=self.text_use,
            learnable_tasks=self.learnable_tasks,
        )


BASELINE: Final = "8/0"
OURS: Final = "sapo+"
RIVAL: Final = "4/4"
"""Baseline for the network's sampler: the same mixture, sampled uniformly."""

TEACHING: Final = Arm("teaching", 32, 0)
"""The arm of teachers: many tasks, each answered ``TEACHER_COMPLETIONS`` times."""

TEACHER_COMPLETIONS: Final = 2
"""``TEACHING`` is as much work as eight groups of eight. Right answers to one task are similar, so a learner
uses one of them: a teacher represents four accounts of a larger swarm."""

ARMS: Final[Mapping[str, Arm]] = {
    arm.name: arm
    for arm in (
        Arm(BASELINE, 8, 0),
        Arm("6/2", 6, 2),
        Arm(RIVAL, 4, 4),
        Arm("2/6", 2, 6),
        Arm("4/4-negative", 4, 4, external_loss="negative_weighted"),
        Arm("4/4-tapered", 4, 4, external_loss="tapered"),
        Arm("4/4-positive", 4, 4, external_loss="positive"),
        Arm("4/4-capability", 4, 4, external_loss="capability"),
        Arm("8/0-dynamic", 8, 0, redraws=24),
        Arm(OURS, 4, 4, sampler="weighted", agreement=True),
        Arm("curriculum", 8, 0, learnable_tasks=True),
        Arm("oracle", 8, 0, text_use=TextUse.IMITATE, oracle=True),
        Arm("oracle-hints", 8, 0, text_use=TextUse.RATIONALISE, oracle=True),
        Arm("hints", 8, 0, text_use=TextUse.RATIONALISE),
        Arm("practise", 4, 4, sampler="useful", text_use=TextUse.PRACTISE),
        Arm("imitate", 8, 0, text_use=TextUse.IMITATE),
        Arm("hybrid", 4, 4, sampler="useful", text_use=TextUse.HYBRID),
    )
}
"""The paper's four arms, controls without others' text, and uses of others' text.

``4/4-negative`` to ``4/4-capability`` are the paper's mixture with other losses for others' text.
``sapo+`` trains only text of others that agrees with the own groups (``learner/losses/own_gradient.py``).
``8/0-dynamic`` may discard own groups without advantage. ``curriculum`` draws own tasks by how much can be
learned from them. ``oracle`` has demonstrations from the task generator, which every node can get without a
swarm, and ``oracle-hints`` writes its own steps to the generator's answers: sharing must be better than both.
"""


def arms_named(names: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms of these names.

    Raises:
        SapoError: there is no such arm.
    """
    known = known_arms()
    if unknown := [name for name in names if name not in known]:
        raise SapoError(
            f"there is no arm {unknown[0]!r}", hint=f"arms are {', '.join(known)}", exit_code=ExitCode.USAGE
        )
    return tuple(known[name] for name in names)


def known_arms() -> Mapping[str, Arm]:
    """Return the arms by name: the built-in ones, then those of plug-ins.

    Raises:
        SapoError: a plug-in cannot be imported.
    """
    plugged = {name: plugins.load(plugins.ARMS, name, Arm) for name in plugins.installed(plugins.ARMS)}
    return {**ARMS, **{name: arm for name, arm in plugged.items() if name not in ARMS}}
