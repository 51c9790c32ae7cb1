"""Simulation of a swarm whose difficulty follows its success: pay, learning, and attacks on the ladder.

Only the policies are modelled, each by one number, its skill. Everything else is the network's own code: an
engine admits and verifies every rollout, its count becomes the auditors' tallies, and these are settled to
shares and to the next record, which is in force two epochs later, as on a chain with short windows.

A policy is right with the probability ``1 / (1 + exp(-GAIN * (skill - difficulty)))``. The difficulty of an
item is its level, from 0 on, plus noise. Skill grows with the share of groups that have right and wrong
answers.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from statistics import fmean
from typing import Final

from sapo_protocol import ed25519, secp256k1
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.contributions import Tally, settle
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.settlement import first_record, next_record, quorum_size
from sapo_protocol.suite import Family, Suite
from sapo_protocol.tasks import Task
from sapo_protocol.terms.difficulty import Difficulty, Outcomes, Record
from sapo_protocol.topics import certificates_topic
from sapo_verification.engine import Engine
from sapo_verification.jail.messages import Checked

GAIN: Final = 3.0
NOISE: Final = 0.6
"""Standard deviation of an item's difficulty, in levels."""

SKILL_PER_EPOCH: Final = 0.6
"""Skill in levels that a policy gains in an epoch in which all of its groups have right and wrong answers."""

FIRST_SKILL: Final = -0.35
"""Initial skill: about three of ten answers at the lowest level are right, as in the README's swarm."""

COMPLETIONS: Final = 8
LEVELS: Final = 5
_LAG_EPOCHS: Final = 2
_EPOCH_SECONDS: Final = 600
_BUDGET: Final = 2**31
_RIGHT, _WRONG = b"1", b"0"


class AnswerBehaviour(Enum):
    """How an account answers."""

    HONEST = "as well as it can"
    WRONG = "always wrong"
    RIGHT = "always right"
    MIXED = "one wrong answer in every group"
    HIDDEN = "wrong in a quarter of its groups, so that its share of wrong groups is close to others'"


class CountLie(Enum):
    """Outcome that a lying auditor reports for all groups."""

    WRONG = "all wrong"
    RIGHT = "all right"


@dataclass(frozen=True, slots=True)
class LadderPlan:
    """Settings of a simulation.

    Attributes:
        behaviour: behaviour of the dishonest accounts.
        liars: number of the four auditors that report false outcomes.
        follows: whether levels follow the swarm; otherwise all tasks have the lowest level and only groups
            with right and wrong answers are paid, as without ladders.
        rollouts: number of rollouts of an account in an epoch.
    """

    honest: int = 3
    dishonest: int = 0
    behaviour: AnswerBehaviour = AnswerBehaviour.HONEST
    liars: int = 0
    lie: CountLie = CountLie.WRONG
    follows: bool = True
    epochs: int = 16
    rollouts: int = 48
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LadderEpoch:
    """Results of an epoch.

    Attributes:
        position: position of the ladder in the epoch, in levels.
        mixed: share of the honest accounts' groups that have right and wrong answers.
        reward: mean reward of the honest accounts' answers.
        points: sum of the honest accounts' points.
        dishonest_points: sum of the other accounts' points.
        hardest: the honest accounts' mean success at the hardest level after the epoch.
    """

    position: float
    mixed: float
    reward: float
    points: int
    dishonest_points: int
    hardest: float


def simulate(plan: LadderPlan) -> list[LadderEpoch]:
    """Return the results of each epoch."""
    return asyncio.run(_simulate(plan))


async def _simulate(plan: LadderPlan) -> list[LadderEpoch]:
    swarm = _Swarm(plan)
    return [await swarm.play(epoch) for epoch in range(plan.epochs)]


def manifest_of(follows: bool) -> Manifest:
    """Return the manifest of a swarm of table policies; no item of its families is ever derived."""
    families = tuple(_family(level) for level in range(LEVELS if follows else 1))
    return Manifest(
        name="table policies",
        genesis_seconds=0,
        epoch_seconds=_EPOCH_SECONDS,
        suite=Suite("none", families, Digest(bytes(32))),
        limits=Limits(slots_per_epoch=1024, max_completions=COMPLETIONS, points_per_epoch=512),
        version=2,
        difficulty=Difficulty(ladders=(tuple(range(LEVELS)),)) if follows else None,
    )


def _family(level: int) -> Family:
    return Family(
        name="table",
        level=str(level),
        config="{}",
        scorer="exact/1",
        prompt="{question}",
        answer="plain",
        max_completion_bytes=8,
    )


@dataclass
class _Author:
    """An account with its keys and its policy."""

    name: str
    behaviour: AnswerBehaviour
    rng: random.Random
    skill: float = FIRST_SKILL

    def __post_init__(self) -> None:
        self.seed = sha256(f"node {self.name}".encode()).digest()
        self.secret = sha256(f"account {self.name}".encode()).digest()
        self.node = ed25519.public_key(self.seed)
        self.account = secp256k1.account_of(self.secret)

    def answers(self, level: int) -> tuple[bytes, ...]:
        """Return a group of answers to an item of a level."""
        success = _success(self.skill, level + self.rng.gauss(0, NOISE))
        honest = tuple(_RIGHT if self.rng.random() < success else _WRONG for _ in range(COMPLETIONS))
        match self.behaviour:
            case AnswerBehaviour.HONEST:
                return honest
            case AnswerBehaviour.WRONG:
                return (_WRONG,) * COMPLETIONS
            case AnswerBehaviour.RIGHT:
                return (_RIGHT,) * COMPLETIONS
            case AnswerBehaviour.MIXED:
                return (_WRONG, *(_RIGHT,) * (COMPLETIONS - 1))
            case AnswerBehaviour.HIDDEN:
                return honest if self.rng.random() < 0.75 else (_WRONG,) * COMPLETIONS


def _success(skill: float, difficulty: float) -> float:
    return 1 / (1 + math.exp(-GAIN * (skill - difficulty)))


def hardest(skill: float) -> float:
    """Return the mean probability of a right answer over items of the hardest level."""
    rng = random.Random(0)
    return sum(_success(skill, LEVELS - 1 + rng.gauss(0, NOISE)) for _ in range(400)) / 400


class _Swarm:
    """A swarm with one engine, whose count all honest auditors use."""

    def __init__(self, plan: LadderPlan) -> None:
        self._plan = plan
        self._manifest = manifest = manifest_of(plan.follows)
        self._records: list[Record] = [first_record(manifest)]
        self._cumulative: dict[Account, int] = {}
        behaviours = [AnswerBehaviour.HONEST] * plan.honest + [plan.behaviour] * plan.dishonest
        self._authors = [
            _Author(f"player {number}", behaviour, random.Random(f"{plan.seed}/{number}"))
            for number, behaviour in enumerate(behaviours)
        ]
        self._honest = self._authors[: plan.honest]
        auditor = _Author("auditor", AnswerBehaviour.HONEST, random.Random(0))
        self._auditor = auditor
        self._engine = Engine(
            manifest,
            ":memory:",
            own=auditor.account,
            check=_check,
            beacon_of=lambda epoch: beacon(manifest.swarm_id, epoch, b"simulated block"),
            key=bytes(32),
            record_of=self._in_force,
        )
        for author in self._authors:
            self._introduce(author)

    def _in_force(self, epoch: int) -> Record:
        return self._records[max(0, epoch + 1 - _LAG_EPOCHS)]

    def _introduce(self, author: _Author) -> None:
        manifest, end = self._manifest, self._plan.epochs * _EPOCH_SECONDS
        binding = NodeBinding(author.node, manifest.swarm_id, 0, end)
        envelope = issue_certificate(author.seed, author.secret, binding, manifest.binding_domain)
        self._engine.receive(certificates_topic(manifest.swarm_id), envelope.to_bytes(), 0.0)

    async def play(self, epoch: int) -> LadderEpoch:
        """Simulate an epoch: rollouts, their verification, tallies, settlement, learning."""
        groups = {author.account: await self._rollouts(author, epoch) for author in self._authors}
        earned = self._settle(epoch)
        for author in self._authors:  # dishonest accounts may learn too, but their answers do not show it
            mixed = sum(0 < right < COMPLETIONS for right in groups[author.account])
            author.skill += SKILL_PER_EPOCH * mixed / self._plan.rollouts
        rights = [right for author in self._honest for right in groups[author.account]]
        paid = {author.account: earned.get(author.account, 0) for author in self._authors}
        points = sum(paid[author.account] for author in self._honest)
        return LadderEpoch(
            position=self._position(epoch),
            mixed=sum(0 < right < COMPLETIONS for right in rights) / len(rights),
            reward=sum(rights) / len(rights) / COMPLETIONS,
            points=points,
            dishonest_points=sum(paid.values()) - points,
            hardest=sum(hardest(author.skill) for author in self._honest) / len(self._honest),
        )

    def _position(self, epoch: int) -> float:
        record = self._in_force(epoch)
        return sum(level * row.weight for level, row in enumerate(record)) / 1000

    async def _rollouts(self, author: _Author, epoch: int) -> list[int]:
        """Let an account answer its slots; return the number of right answers of each group."""
        now, rights = epoch_start_seconds(self._manifest, epoch) + 1.0, []
        for slot in range(self._plan.rollouts):
            [level] = self._engine.levels.families_of(epoch, author.account, slot)
            answers = author.answers(level)
            rights.append(answers.count(_RIGHT))
            rollout = Rollout(author.node, author.account, epoch, slot, level, answers)
            message = seal(Kind.ROLLOUT, self._manifest.swarm_id, rollout.to_payload(), author.seed)
            await self._engine.verify(self._engine.admit_own(message.to_bytes(), now))
        return rights

    def _settle(self, epoch: int) -> dict[Account, int]:
        """Settle the tallies of the auditors; return the points of each account."""
        tallies = [self._tally(epoch, number) for number in range(4)]
        if self._plan.liars:
            tallies = tallies[
                : quorum_size(4)
            ]  # a dishonest proposer names its own tally and as few others as possible
        cap = self._manifest.limits.points_per_epoch
        shares = settle(tallies, self._cumulative, points_per_epoch=cap, epoch_budget=_BUDGET)
        self._cumulative = {share.account: share.cumulative for share in shares}
        record = next_record(self._manifest.difficulty, self._records[-1], tallies)
        if record is None:
            raise AssertionError("every tally has a row per family")
        self._records.append(record)
        return {share.account: share.points for share in shares}

    def _tally(self, epoch: int, auditor: int) -> Tally:
        engine, limits = self._engine, self._manifest.limits
        accounts = [author.account for author in self._authors]
        record = engine.levels.record(epoch)
        if record is None:
            points = engine.count.points(epoch, accounts, limits.points_per_epoch)
        else:
            points = engine.count.points_by_level(epoch, accounts, limits.points_per_epoch, record)
        outcomes = engine.count.outcomes(epoch, accounts, len(self._manifest.suite.families))
        return Tally(
            node=self._auditor.node,
            account=self._auditor.account,
            epoch=epoch,
            points=points,
            evidence_root=engine.count.evidence_root(epoch),
            outcomes=self._lie(outcomes) if auditor < self._plan.liars else outcomes,
        )

    def _lie(self, outcomes: Sequence[Outcomes]) -> tuple[Outcomes, ...]:
        many = 2**32
        lie = Outcomes(0, 0, many) if self._plan.lie is CountLie.WRONG else Outcomes(many, 0, 0)
        return (lie,) * len(outcomes)


async def _check(_task: Task, completions: Sequence[bytes]) -> Checked:
    """Score the answers of table policies, each of which states whether it is right."""
    return Checked("a task", tuple(float(completion == _RIGHT) for completion in completions))


TEN: Final = LadderPlan(honest=7, dishonest=3, rollouts=32)
"""Three accounts of ten are dishonest."""

LADDER_ATTACKS: Final = (
    ("ten honest accounts", TEN),
    ("3 of 10 accounts always wrong", replace(TEN, behaviour=AnswerBehaviour.WRONG)),
    ("3 of 10 accounts wrong in a quarter", replace(TEN, behaviour=AnswerBehaviour.HIDDEN)),
    ("4 of 10 accounts always wrong", replace(TEN, honest=6, dishonest=4, behaviour=AnswerBehaviour.WRONG)),
    ("3 of 10 accounts always right", replace(TEN, behaviour=AnswerBehaviour.RIGHT)),
    ("3 of 10 accounts always mixed", replace(TEN, behaviour=AnswerBehaviour.MIXED)),
    ("1 of 4 auditors says all wrong", replace(TEN, liars=1)),
    ("1 of 4 auditors says all right", replace(TEN, liars=1, lie=CountLie.RIGHT)),
    ("1 auditor and 3 accounts, wrong", replace(TEN, behaviour=AnswerBehaviour.WRONG, liars=1)),
    (
        "1 auditor and 3 accounts, right",
        replace(TEN, behaviour=AnswerBehaviour.RIGHT, liars=1, lie=CountLie.RIGHT),
    ),
    ("2 of 4 auditors say all wrong", replace(TEN, liars=2)),
)
"""Attempts to move the ladder, by name."""


@dataclass(frozen=True, slots=True)
class LadderAttackResult:
    """Effect of an attempt to move the ladder, over the last half of the epochs.

    Attributes:
        position: mean position of the ladder, in levels.
        mixed: mean share of the honest accounts' groups that have right and wrong answers.
        points: points of one honest account in an epoch.
        dishonest_points: points of one dishonest account in an epoch.
        hardest: see ``LadderEpoch``, after the last epoch.
    """

    name: str
    position: float
    mixed: float
    points: float
    dishonest_points: float
    hardest: float


def attack_result(name: str, plan: LadderPlan, *, seed: int = 0, epochs: int = 16) -> LadderAttackResult:
    """Return the effect of an attempt to move the ladder."""
    played = simulate(replace(plan, seed=seed, epochs=epochs))
    late = played[len(played) // 2 :]
    honest, others = (sum(each.points for each in late), sum(each.dishonest_points for each in late))
    return LadderAttackResult(
        name,
        position=fmean(each.position for each in late),
        mixed=fmean(each.mixed for each in late),
        points=honest / plan.honest / len(late),
        dishonest_points=others / plan.dishonest / len(late) if plan.dishonest else 0.0,
        hardest=played[-1].hardest,
    )
