"""What `sapo lab run` compares: arms, presets, and one run of one arm at one seed.

All arms have the same update size, I + J groups. As in the paper, every account is trusted, because all are
the experiment's own: the caps of the network's sampler are open, which `sapo join` never allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Final, get_args

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.seeds import sampling_seed
from sapo_client.learner.settings import DeviceChoice
from sapo_protocol import ed25519, secp256k1
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, NodeId
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.suites.catalogue import FAMILIES, NANO_DEFAULT, family

OPEN_CAP: Final = 1.0
OPEN_NEWCOMER_CAP: Final = 0.5
"""Share of external groups for newcomers while some accounts already have weight; both kinds get a part."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to mix a batch.

    Attributes:
        local: own groups, I of the paper.
        external: external groups, J of the paper.
        redraws: most own groups per round that may be sampled again because they have no advantage.
        sampler: name of the sampling strategy for external groups.
    """

    name: str
    local: int
    external: int
    redraws: int = 0
    sampler: str = "uniform"

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
        )


BASELINE: Final = "8/0"
OURS: Final = "sapo+"
RIVAL: Final = "4/4"
"""What the network's sampler must beat: the same mixture, sampled uniformly."""

ARMS: Final[Mapping[str, Arm]] = {
    arm.name: arm
    for arm in (
        Arm(BASELINE, 8, 0),
        Arm("6/2", 6, 2),
        Arm(RIVAL, 4, 4),
        Arm("2/6", 2, 6),
        Arm("8/0-dynamic", 8, 0, redraws=24),
        Arm(OURS, 4, 4, sampler="weighted"),
    )
}
"""The paper's four, a control that may discard own groups without advantage, and the network's sampler."""


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """Settings that all arms and seeds of an experiment share.

    Attributes:
        model: initial model of every agent.
        level: level of the task families.
        learning_rate: learning rate of AdamW; None chooses by the model's size.
        evaluate_every: rounds between two evaluations on the held-out set.
        held_out_per_family: items of that set per family.
        rounds_per_epoch: length of an epoch; rollouts older than the previous epoch are not sampled.
        checkpoint_every: rounds between checkpoints, the most that a killed run loses.
    """

    model: str
    level: str
    families: tuple[str, ...]
    agents: int
    rounds: int
    completions: int = 8
    learning_rate: float | None = None
    temperature: float = 1.0
    max_new_tokens: int = 32
    evaluate_every: int = 20
    held_out_per_family: int = 24
    rounds_per_epoch: int = 4
    checkpoint_every: int = 20
    device: DeviceChoice = "cpu"
    bfloat16: bool = False

    def __post_init__(self) -> None:
        if self.agents < 2 or self.rounds < 1:
            raise SapoError(
                f"{self.agents} agents and {self.rounds} rounds are too few",
                hint="take at least two agents and one round",
                exit_code=ExitCode.USAGE,
            )
        if self.temperature <= 0 or (self.learning_rate is not None and self.learning_rate <= 0):
            raise SapoError(
                "temperature and learning rate must be above zero",
                hint="leave --temperature and --learning-rate out to use the preset's",
                exit_code=ExitCode.USAGE,
            )
        if self.device not in get_args(DeviceChoice):
            raise SapoError(
                f"there is no device {self.device!r}",
                hint=f"devices are {', '.join(get_args(DeviceChoice))}",
                exit_code=ExitCode.USAGE,
            )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {**asdict(self), "families": list(self.families)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ExperimentPlan:
        """Parse the plan that ``to_json`` returned."""
        return cls(**{**document, "families": tuple(document["families"])})


PRESETS: Final[Mapping[str, ExperimentPlan]] = {
    "quick": ExperimentPlan(
        model="bundled-chatty",
        level="nano",
        families=NANO_DEFAULT,
        agents=8,
        rounds=40,
        learning_rate=5e-5,
        evaluate_every=5,
    ),
    "paper": ExperimentPlan(
        model="Qwen/Qwen2.5-0.5B-Instruct",
        level="full",
        families=FAMILIES,
        agents=8,
        rounds=2000,
        max_new_tokens=256,
        evaluate_every=50,
        held_out_per_family=32,
        checkpoint_every=50,
        device="cuda",
        bfloat16=True,
    ),
}
"""All arms and five seeds of `quick` fit 90 minutes of two cores (docs/results.md); `paper` needs a GPU."""

SEEDS: Final = 5


@dataclass(frozen=True, slots=True)
class Run:
    """One arm at one seed."""

    plan: ExperimentPlan
    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """Its folder inside the experiment's."""
        return f"{self.arm.name.replace('/', '-')}/seed-{self.seed}"

    def author(self, number: int) -> AgentKeys:
        """Return an agent's keys: the same in every arm, so arms of one seed share their tasks."""
        return AgentKeys(f"{self.seed}/{number}")

    def evaluation_seed(self, number: int, round_: int) -> int:
        """Return the seed of an agent's sampled answers on the held-out set after a round.

        It is the same in every arm, which reduces the noise of differences. Agents and seeds of an experiment
        never share one: the error of a shared draw would stay in all means, hidden from intervals over seeds.
        """
        return sampling_seed(f"lab evaluation {self.seed}/{number}/{round_}")


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """Both secret keys of an agent, derived from its name; only for experiments."""

    name: str

    @property
    def node_seed(self) -> bytes:
        """The secret seed of the node key."""
        return sha256(f"lab node {self.name}".encode()).digest()

    @property
    def account_key(self) -> bytes:
        """The secret key of the account."""
        return sha256(f"lab account {self.name}".encode()).digest()

    @property
    def node(self) -> NodeId:
        """The node key."""
        return ed25519.public_key(self.node_seed)

    @property
    def account(self) -> Account:
        """The account."""
        return secp256k1.account_of(self.account_key)


def planned(preset: str, **changes: Any) -> ExperimentPlan:
    """Return a preset with the changes that are not None.

    Raises:
        SapoError: there is no such preset, family or level, or the changed plan is invalid.
    """
    if preset not in PRESETS:
        raise SapoError(
            f"there is no preset {preset!r}",
            hint=f"presets are {' and '.join(PRESETS)}",
            exit_code=ExitCode.USAGE,
        )
    given = {name: value for name, value in changes.items() if value is not None}
    plan = replace(PRESETS[preset], **given)
    for name in plan.families:
        _require_level(name, plan.level)
    return plan


def _require_level(name: str, level: str) -> None:
    try:
        family(name, level)
    except LocalProtocolError as error:
        raise SapoError(
            str(error), hint="choose with --families and --level", exit_code=ExitCode.USAGE
        ) from error
    extras.require_families([name])


def arms_named(names: list[str]) -> tuple[Arm, ...]:
    """Return the arms of these names.

    Raises:
        SapoError: there is no such arm.
    """
    if unknown := [name for name in names if name not in ARMS]:
        raise SapoError(
            f"there is no arm {unknown[0]!r}", hint=f"arms are {', '.join(ARMS)}", exit_code=ExitCode.USAGE
        )
    return tuple(ARMS[name] for name in names)
