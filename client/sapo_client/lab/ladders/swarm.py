"""Simulation of a swarm whose levels follow it: what it is paid, what it learns, and who can move its ladder.

Only the policies are modelled, each by one number, its skill. Everything else is the network's own code: an
engine admits and verifies every rollout, its count becomes the auditors' tallies, and these are settled to
shares and to the next record, which is in force two epochs later, as on a chain with short windows.

A policy is right with the probability ``1 / (1 + exp(-GAIN * (skill - difficulty)))``. The difficulty of an
item is its level, from 0 on, and some noise. Skill grows by what groups with right and wrong answers teach.
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

LESSON: Final = 0.6
"""Levels that a policy gains in an epoch in which all of its groups teach."""

FIRST_SKILL: Final = -0.35
"""About three of ten answers at the lowest level are right, as in the swarm that the README shows."""

COMPLETIONS: Final = 8
LEVELS: Final = 5
_LAG_EPOCHS: Final = 2
_EPOCH_SECONDS: Final = 600
_BUDGET: Final = 2**31
_RIGHT, _WRONG = b"1", b"0"


class Conduct(Enum):
    """How an account answers."""

    HONEST = "as well as it can"
    WRONG = "always wrong"
    RIGHT = "always right"
    MIXED = "one wrong answer in every group"
    HIDDEN = "wrong in a quarter of its groups, so that its part of wrong ones is not far from others'"


class CountLie(Enum):
    """What a lying auditor says of all groups."""

    WRONG = "all wrong"
    RIGHT = "all right"


@dataclass(frozen=True, slots=True)
class LadderPlan:
    """One simulation.

    Attributes:
        conduct: of the dishonest accounts.
        liars: auditors of four that lie about how groups came out.
        follows: whether levels follow the swarm; otherwise all tasks are of the lowest level and mixed groups
            alone are paid, as without ladders.
        rollouts: of an account in an epoch.
    """

    honest: int = 3
    dishonest: int = 0
    conduct: Conduct = Conduct.HONEST
    liars: int = 0
    lie: CountLie = CountLie.WRONG
    follows: bool = True
    epochs: int = 16
    rollouts: int = 48
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LadderEpoch:
    """What became of an epoch.

    Attributes:
        position: of the ladder in the epoch, in levels.
        mixed: part of the honest accounts' groups with right and wrong answers.
        reward: mean of the honest accounts' answers.
        points: of the honest accounts, all together.
        dishonest_points: of the others.
        hardest: probability of the honest accounts' right answer at the hardest level, after the epoch.
    """

    position: float
    mixed: float
    reward: float
    points: int
    dishonest_points: int
    hardest: float


def simulate(plan: LadderPlan) -> list[LadderEpoch]:
    """Return what became of each epoch."""
    return asyncio.run(_simulate(plan))


async def _simulate(plan: LadderPlan) -> list[LadderEpoch]:
    swarm = _Swarm(plan)
    return [await swarm.play(epoch) for epoch in range(plan.epochs)]


def manifest_of(follows: bool) -> Manifest:
    """Return the manifest of a swarm of table policies; its families' items are never derived."""
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
class _Player:
    """An account with its policy."""

    name: str
    conduct: Conduct
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
        match self.conduct:
            case Conduct.HONEST:
                return honest
            case Conduct.WRONG:
                return (_WRONG,) * COMPLETIONS
            case Conduct.RIGHT:
                return (_RIGHT,) * COMPLETIONS
            case Conduct.MIXED:
                return (_WRONG, *(_RIGHT,) * (COMPLETIONS - 1))
            case Conduct.HIDDEN:
                return honest if self.rng.random() < 0.75 else (_WRONG,) * COMPLETIONS


def _success(skill: float, difficulty: float) -> float:
    return 1 / (1 + math.exp(-GAIN * (skill - difficulty)))


def hardest(skill: float) -> float:
    """Return the probability of a right answer at the hardest level, over items."""
    rng = random.Random(0)
    return sum(_success(skill, LEVELS - 1 + rng.gauss(0, NOISE)) for _ in range(400)) / 400


class _Swarm:
    """A swarm with one engine, whose count all honest auditors have."""

    def __init__(self, plan: LadderPlan) -> None:
        self._plan = plan
        self._manifest = manifest = manifest_of(plan.follows)
        self._records: list[Record] = [first_record(manifest)]
        self._cumulative: dict[Account, int] = {}
        conducts = [Conduct.HONEST] * plan.honest + [plan.conduct] * plan.dishonest
        self._players = [
            _Player(f"player {number}", conduct, random.Random(f"{plan.seed}/{number}"))
            for number, conduct in enumerate(conducts)
        ]
        self._honest = self._players[: plan.honest]
        auditor = _Player("auditor", Conduct.HONEST, random.Random(0))
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
        for player in self._players:
            self._introduce(player)

    def _in_force(self, epoch: int) -> Record:
        return self._records[max(0, epoch + 1 - _LAG_EPOCHS)]

    def _introduce(self, player: _Player) -> None:
        manifest, end = self._manifest, self._plan.epochs * _EPOCH_SECONDS
        binding = NodeBinding(player.node, manifest.swarm_id, 0, end)
        envelope = issue_certificate(player.seed, player.secret, binding, manifest.binding_domain)
        self._engine.receive(certificates_topic(manifest.swarm_id), envelope.to_bytes(), 0.0)

    async def play(self, epoch: int) -> LadderEpoch:
        """Play an epoch: rollouts, their verification, tallies, settlement, learning."""
        groups = {player.account: await self._rollouts(player, epoch) for player in self._players}
        earned = self._settle(epoch)
        for player in self._players:  # those that do not answer as well as they can learn nothing they show
            mixed = sum(0 < right < COMPLETIONS for right in groups[player.account])
            player.skill += LESSON * mixed / self._plan.rollouts
        rights = [right for player in self._honest for right in groups[player.account]]
        paid = {player.account: earned.get(player.account, 0) for player in self._players}
        points = sum(paid[player.account] for player in self._honest)
        return LadderEpoch(
            position=self._position(epoch),
            mixed=sum(0 < right < COMPLETIONS for right in rights) / len(rights),
            reward=sum(rights) / len(rights) / COMPLETIONS,
            points=points,
            dishonest_points=sum(paid.values()) - points,
            hardest=sum(hardest(player.skill) for player in self._honest) / len(self._honest),
        )

    def _position(self, epoch: int) -> float:
        record = self._in_force(epoch)
        return sum(level * row.weight for level, row in enumerate(record)) / 1000

    async def _rollouts(self, player: _Player, epoch: int) -> list[int]:
        """Let an account answer its slots; return the right answers of each group."""
        now, rights = epoch_start_seconds(self._manifest, epoch) + 1.0, []
        for slot in range(self._plan.rollouts):
            [level] = self._engine.levels.families_of(epoch, player.account, slot)
            answers = player.answers(level)
            rights.append(answers.count(_RIGHT))
            rollout = Rollout(player.node, player.account, epoch, slot, level, answers)
            message = seal(Kind.ROLLOUT, self._manifest.swarm_id, rollout.to_payload(), player.seed)
            await self._engine.verify(self._engine.admit_own(message.to_bytes(), now))
        return rights

    def _settle(self, epoch: int) -> dict[Account, int]:
        """Settle the tallies of the auditors; return the points of each account."""
        tallies = [self._tally(epoch, number) for number in range(4)]
        if self._plan.liars:
            tallies = tallies[: quorum_size(4)]  # a liar proposes: its own tally and no more than it must
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
        accounts = [player.account for player in self._players]
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
        most = 2**32
        lie = Outcomes(0, 0, most) if self._plan.lie is CountLie.WRONG else Outcomes(most, 0, 0)
        return (lie,) * len(outcomes)


async def _check(_task: Task, completions: Sequence[bytes]) -> Checked:
    """Score the answers of table policies, which say themselves whether they are right."""
    return Checked("a task", tuple(float(completion == _RIGHT) for completion in completions))


TEN: Final = LadderPlan(honest=7, dishonest=3, rollouts=32)
"""Three accounts of ten are dishonest."""

MOVERS: Final = (
    ("ten honest accounts", TEN),
    ("3 of 10 accounts always wrong", replace(TEN, conduct=Conduct.WRONG)),
    ("3 of 10 accounts wrong in a quarter", replace(TEN, conduct=Conduct.HIDDEN)),
    ("4 of 10 accounts always wrong", replace(TEN, honest=6, dishonest=4, conduct=Conduct.WRONG)),
    ("3 of 10 accounts always right", replace(TEN, conduct=Conduct.RIGHT)),
    ("3 of 10 accounts always mixed", replace(TEN, conduct=Conduct.MIXED)),
    ("1 of 4 auditors says all wrong", replace(TEN, liars=1)),
    ("1 of 4 auditors says all right", replace(TEN, liars=1, lie=CountLie.RIGHT)),
    ("1 auditor and 3 accounts, wrong", replace(TEN, conduct=Conduct.WRONG, liars=1)),
    (
        "1 auditor and 3 accounts, right",
        replace(TEN, conduct=Conduct.RIGHT, liars=1, lie=CountLie.RIGHT),
    ),
    ("2 of 4 auditors say all wrong", replace(TEN, liars=2)),
)
"""Who tries to move the ladder, and how."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a mover reaches over the last half of the epochs.

    Attributes:
        position: mean of the ladder, in levels.
        mixed: mean of the honest accounts' groups with right and wrong answers.
        points: of one honest account in an epoch.
        dishonest_points: of one dishonest account in an epoch.
        hardest: see ``LadderEpoch``, at the end.
    """

    name: str
    position: float
    mixed: float
    points: float
    dishonest_points: float
    hardest: float


def moved(name: str, plan: LadderPlan, *, seed: int = 0, epochs: int = 16) -> Moved:
    """Return what a mover reaches."""
    played = simulate(replace(plan, seed=seed, epochs=epochs))
    late = played[len(played) // 2 :]
    honest, others = (sum(each.points for each in late), sum(each.dishonest_points for each in late))
    return Moved(
        name,
        position=fmean(each.position for each in late),
        mixed=fmean(each.mixed for each in late),
        points=honest / plan.honest / len(late),
        dishonest_points=others / plan.dishonest / len(late) if plan.dishonest else 0.0,
        hardest=played[-1].hardest,
    )
