"""Plans of `sapo lab run` and `attack`: presets, and one run of one arm with one seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final, get_args

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.arms import Arm
from sapo_client.lab.attackers.catalogue import attack_named, require_possible
from sapo_client.learner.seeds import sampling_seed
from sapo_client.learner.settings import DeviceChoice
from sapo_protocol import ed25519, secp256k1
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, NodeId
from sapo_verification.suites.catalogue import FAMILIES, NANO_DEFAULT, family


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """Settings that all arms and seeds of an experiment share.

    Attributes:
        model: initial model of every agent; the first one, if they differ.
        level: level of the task families.
        agents: number of honest accounts, without attackers.
        learning_rate: learning rate of AdamW; None chooses by the model's size.
        evaluate_every: number of rounds between two evaluations on the held-out set.
        held_out_per_family: number of items of that set per family.
        rounds_per_epoch: length of an epoch; rollouts older than the previous epoch are not sampled.
        checkpoint_every: number of rounds between checkpoints; a killed run loses at most these.
        models: initial models, if agents differ: agent i starts from ``models[i % len(models)]``.
        knows: families that each of ``models`` can solve, if that is known; reports group families by it.
        attack: name of an attack on the swarm, or None.
        attackers: number of attacking accounts.
        teachers: number of further honest accounts that answer and do not train, so that a small experiment
            has as many texts as a larger swarm; they have the same initial models as the agents.
        demonstration_steps: maximum number of supervised steps per round; None chooses by the model's size.
        demonstrations: maximum number of right answers of others, or of the oracle, passed to the learner in
            a round.
        texts_per_step: maximum number of them in a supervised step.
        tasks: number of own groups per round, instead of the arm's.
        teacher_model: initial model of the teachers, if it is another one.
        islands: number of islands, a power of two; 0: none. Agents have their homes on them in turn, teachers
            on the first one, for the whole run (``islands.keys``).
        period_epochs: number of epochs for which a node visits one island.
        visits: whether nodes are subscribed to the island that they visit.
        canary: number of rounds between two checks of each agent's canary; 0: no canary. A killed run with
            canaries starts again from the beginning.
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
    models: tuple[str, ...] = ()
    knows: tuple[tuple[str, ...], ...] = ()
    attack: str | None = None
    attackers: int = 0
    teachers: int = 0
    demonstration_steps: int | None = None
    demonstrations: int = 64
    texts_per_step: int = 64
    tasks: int | None = None
    teacher_model: str | None = None
    islands: int = 0
    period_epochs: int = 1
    visits: bool = True
    canary: int = 0

    def __post_init__(self) -> None:
        self._require_starts()
        self._require_attack()
        self._require_islands()
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

    @property
    def honest(self) -> int:
        """Number of honest accounts in an arm that receives rollouts of others."""
        return self.agents + self.teachers

    @property
    def starts(self) -> tuple[str, ...]:
        """The different initial models."""
        return self.models or (self.model,)

    def start_of(self, agent: int) -> str:
        """Return the initial model of an agent, or of a teacher; teachers' numbers follow the agents'."""
        if agent >= self.agents and self.teacher_model is not None:
            return self.teacher_model
        return self.starts[agent % len(self.starts)]

    def home_of(self, agent: int) -> int:
        """Return the home of an agent or a teacher."""
        return agent % self.islands if self.islands and agent < self.agents else 0

    def under(self, attack: str, attackers: int) -> ExperimentPlan:
        """Return the plan with an attack; tasks and initial models of its agents do not change.

        Raises:
            SapoError: there is no such attack, or it is impossible with these families.
        """
        return replace(self, attack=attack, attackers=attackers)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        knows = [list(names) for names in self.knows]
        return {
            **asdict(self),
            "families": list(self.families),
            "models": list(self.models),
            "knows": knows,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ExperimentPlan:
        """Parse the output of ``to_json``, also that of earlier versions with fewer settings."""
        lists = {name: tuple(document.get(name, ())) for name in ("families", "models")}
        knows = tuple(tuple(names) for names in document.get("knows", ()))
        return cls(**{**document, **lists, "knows": knows})

    def _require_starts(self) -> None:
        if len(set(self.starts)) < len(self.starts) or (self.models and self.model != self.models[0]):
            raise SapoError(
                f"initial models {', '.join(self.starts)} are not different models, {self.model} the first",
                hint="name each model once: agents take them in turn",
                exit_code=ExitCode.USAGE,
            )
        if self.knows and len(self.knows) != len(self.starts):
            raise SapoError(
                f"{len(self.knows)} lists of known families for {len(self.starts)} initial models",
                hint="give one list for each model, or none",
                exit_code=ExitCode.USAGE,
            )

    def _require_islands(self) -> None:
        is_power = self.islands & (self.islands - 1) == 0
        if self.islands < 0 or not is_power or self.islands > self.agents or self.period_epochs < 1:
            raise SapoError(
                f"{self.islands} islands for {self.agents} agents, {self.period_epochs} epochs in a period",
                hint="take a power of two, at most as many as agents, and a period of at least one epoch",
                exit_code=ExitCode.USAGE,
            )

    def _require_attack(self) -> None:
        if self.attack is None and self.attackers == 0:
            return
        if self.attack is None or self.attackers < 1:
            raise SapoError(
                f"{self.attackers} attackers and the attack {self.attack}",
                hint="name an attack and at least one attacker",
                exit_code=ExitCode.USAGE,
            )
        chosen = [family(name, self.level) for name in self.families]
        require_possible(attack_named(self.attack), chosen)


_QUICK: Final = ExperimentPlan(
    model="bundled-chatty",
    level="nano",
    families=NANO_DEFAULT,
    agents=8,
    rounds=40,
    learning_rate=5e-5,
    evaluate_every=5,
)

_KIND_A: Final = ("basic_arithmetic", "fraction_simplification")
_KIND_B: Final = ("binary_matrix", "calendar_arithmetic", "propositional_logic")
"""Families that the two kinds of specialists know. The first was trained on `bf`, too, without success."""

PRESETS: Final[Mapping[str, ExperimentPlan]] = {
    "quick": _QUICK,
    "mixed": replace(_QUICK, model="bundled", models=("bundled", "bundled-chatty")),
    "sizes": replace(_QUICK, models=("bundled-chatty", "bundled-small")),
    "specialists": replace(
        _QUICK,
        model="specialist-a",
        level="worked",
        families=tuple(name for name in FAMILIES if name in (*_KIND_A, *_KIND_B)),
        max_new_tokens=96,
        agents=2,
        teachers=12,
        demonstrations=160,
        held_out_per_family=48,
        models=("specialist-a", "specialist-b"),
        knows=(_KIND_A, _KIND_B),
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
"""All arms and five seeds of `quick` take less than 90 minutes on two cores (docs/results-history.md).
`paper` needs a GPU.

Half of the agents of `mixed` rarely give a bare answer. Half of those of `sizes` have a fifth of the others'
size and their own tokenizer. Each of the two agents of `specialists` knows families that the other one does
not know; six teachers of each kind represent a larger swarm.
"""

_SEEDS: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Run:
    """One arm at one seed."""

    plan: ExperimentPlan
    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder inside the experiment's folder."""
        return f"{self.arm.name.replace('/', '-')}/seed-{self.seed}"

    def author(self, number: int) -> AgentKeys:
        """Return an agent's keys: the same in every arm, so arms of one seed share their tasks."""
        return AgentKeys(f"{self.seed}/{number}")

    @property
    def mixture(self) -> Arm:
        """Its arm, with the plan's number of own tasks."""
        return self.arm if self.plan.tasks is None else replace(self.arm, local=self.plan.tasks)

    @property
    def teachers(self) -> int:
        """Number of teachers; 0 in an arm that does not use others' rollouts."""
        return self.plan.teachers if self.arm.hears_others else 0

    def honest(self) -> tuple[Account, ...]:
        """Return the accounts of all agents and teachers; all other accounts are attackers'."""
        return tuple(keys.account for keys in self.authors())

    def authors(self) -> tuple[AgentKeys, ...]:
        """Return the keys of all agents, then of the teachers."""
        return tuple(self.author(number) for number in range(self.plan.agents + self.teachers))

    def attacker(self, number: int, alias: str = "") -> AgentKeys:
        """Return the keys of an attacker's account, or of its additional account named ``alias``."""
        return AgentKeys(f"{self.seed}/attacker {number}/{alias}")

    def evaluation_seed(self, number: int, round_: int) -> int:
        """Return the seed of an agent's sampled answers on the held-out set after a round.

        It is the same in every arm, which reduces the noise of differences. It differs between agents and
        between seeds of an experiment: the error of a shared draw would be in all means, and intervals over
        seeds would not show it.
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
            hint=f"presets are {', '.join(PRESETS)}",
            exit_code=ExitCode.USAGE,
        )
    given = {name: value for name, value in changes.items() if value is not None}
    if "model" in given:  # all agents start from it, or from ``models``
        given = {"models": (), "knows": (), **given}
    plan = replace(PRESETS[preset], **given)
    for name in plan.families:
        _require_level(name, plan.level)
    if plan.models == PRESETS[preset].models:
        for name in plan.models:
            require_packaged(name)
    return plan


def seeds_of(text: str) -> range:
    """Return the seeds of an option's value: ``5`` means seeds 0 to 4, ``3-4`` these two.

    Raises:
        SapoError: the value names no seeds.
    """
    if (named := _SEEDS.fullmatch(text)) is not None:
        first, last = named.groups()
        seeds = range(int(first)) if last is None else range(int(first), int(last) + 1)
        if seeds:
            return seeds
    raise SapoError(
        f"{text!r} names no seeds",
        hint="write 5 for seeds 0 to 4, or 3-4 for these two",
        exit_code=ExitCode.USAGE,
    )


def require_packaged(model: str) -> None:
    """Raise unless a preset's initial model is in the package; it is never looked up on a model hub."""
    if not (files("sapo_client") / "models" / model).is_dir():
        raise SapoError(
            f"this release has no initial model {model!r}",
            hint="choose models with --model, or another --preset",
            exit_code=ExitCode.USAGE,
        )


def _require_level(name: str, level: str) -> None:
    try:
        family(name, level)
    except LocalProtocolError as error:
        raise SapoError(
            str(error), hint="choose with --families and --level", exit_code=ExitCode.USAGE
        ) from error
    extras.require_families([name])
