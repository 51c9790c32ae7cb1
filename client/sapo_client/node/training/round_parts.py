"""The parts of the node that a training round uses, and a slot with its task."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from sapo_client.learner.backend import Learning, SamplingAhead
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock, ClockWatch
from sapo_client.node.runtime.context import Author
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.training.canary import CanaryRole
from sapo_client.node.training.doppelganger import Doppelganger
from sapo_client.node.training.judge_client import JudgeRole
from sapo_client.node.training.promotion import PromotionRole
from sapo_client.node.training.rationalise import Rationaliser
from sapo_client.node.training.rehearsal import Rehearsal
from sapo_protocol.manifest import Manifest
from sapo_protocol.tasks import Task
from sapo_verification.engine import Engine
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.signing.database import SigningDatabase, SlotShare
from sapo_verification.types import Demonstration


@dataclass(frozen=True, slots=True)
class Slot:
    """An assigned slot and its task."""

    epoch: int
    slot: int
    task: Task


class Prompts(Protocol):
    """Interface that derives the prompts of tasks."""

    async def prompt(self, task: Task) -> str:
        """See ``CheckerPool.prompt``."""
        ...


class DemonstrationSource(Protocol):
    """Interface that returns right answers to imitate; the engine returns those of other accounts."""

    def demonstrate(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """See ``Engine.demonstrate``."""
        ...

    def take_to_judge(self, epoch: int, rng: random.Random) -> tuple[Demonstration, ...]:
        """See ``Engine.take_to_judge``."""
        ...


@dataclass(frozen=True, slots=True)
class RoundParts:
    """The parts that a round uses.

    Attributes:
        clock_watch: decides whether the clock is confirmed.
        canary: detects harm by external text.
        judge: asks the policy a question between rounds, if a judge is configured.
        demonstrations: source of right answers to imitate, if the sampling policy does.
        rehearsal: source of own right answers to train together with them.
        promotion: makes the weights trained on them the policy when they are better.
        rationaliser: writes own steps to answers of others, if the sampling policy does.
        ahead: samples the next round while the present one trains; None if each round samples its own.
        redraws: most own groups of a round that are sampled again to replace ones without advantage.
    """

    author: Author
    engine: Engine
    policy: SamplingPolicy
    completions: int
    signing: SigningDatabase
    share: SlotShare
    doppelganger: Doppelganger
    beacons: Beacons
    checkers: Prompts
    learner: Learning
    gossip: GossipHandlers
    telemetry: Telemetry
    clock: Clock
    clock_watch: ClockWatch
    rng: random.Random
    canary: CanaryRole
    judge: JudgeRole
    demonstrations: DemonstrationSource
    rehearsal: Rehearsal
    promotion: PromotionRole
    rationaliser: Rationaliser
    ahead: SamplingAhead | None = None
    redraws: int = 0

    @property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.engine.manifest
