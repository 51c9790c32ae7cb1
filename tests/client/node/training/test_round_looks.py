"""What canary and promotion make of a round in which the policy went back."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from pathlib import Path

from support.canary_pulses import Shown
from support.self_scored import SelfScored
from support.simulated_policies import SimulatedPolicies, simulated_canary
from support.swarm import Identity, make_manifest, make_suite
from support.verification_harness import VerificationHarness

from sapo_client.node.training.level_file import LevelFile
from sapo_client.node.training.promotion import Promotion, after_round
from sapo_client.observe.events import EventLog
from sapo_protocol.identifiers import Account
from sapo_protocol.tasks import Task
from sapo_verification.types import SampledBatch

NAMES = ("basic_arithmetic", "fraction_simplification")
SUITE = make_suite("nano", NAMES)
OWN, OTHER = Identity(1), Identity(2)
BATCH = SampledBatch(groups=(), demonstrations=(Shown(Task(1, 0), "", b"", None, OTHER.account),))


class WithCandidate(SimulatedPolicies):
    """Policies with a candidate, which is gone when the policy goes back, as a learner's is.

    Attributes:
        candidate: its chances; None if there is none.
        promoted: number of promotions.
    """

    def __init__(self, checker: SelfScored) -> None:
        super().__init__(checker, (0.8, 0.3), (0.8, 0.3), random.Random(2))
        self.candidate: Sequence[float] | None = (0.2, 0.9)
        self.promoted = 0

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        luck = [self._rng.random() for _ in prompts]
        return self._said(self.policy, luck), self._said(self.candidate or self.policy, luck)

    async def promote(self) -> None:
        self.promoted += 1

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        await super().roll_back(planters)
        self.candidate = None


async def test_a_policy_that_went_back_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Its answers are like its own, which would prove what no candidate had: the promotion of none."""
    checker = SelfScored(NAMES)
    learner = WithCandidate(checker)
    desk = VerificationHarness((OWN, OTHER), manifest=make_manifest(suite=SUITE))
    events = EventLog(tmp_path / "events.jsonl", clock=lambda: 0.0)
    canary = simulated_canary(tmp_path, desk, learner, events=events)
    levels = LevelFile(tmp_path / "levels.json", SUITE.families)
    promotion = Promotion(
        learner, checker, events, families=len(NAMES), tasks=64, rng=random.Random(2), file=levels
    )
    await canary.open()
    for _ in range(4):
        await after_round(canary, promotion, BATCH, step=1, has_candidate=True)
    assert (learner.returned, learner.promoted) == (0, 0), "the candidate is better, but lost a family"
    learner.policy = [0.0, 0.3]
    while not learner.returned:
        await after_round(canary, promotion, BATCH, step=1, has_candidate=True)
    found = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["event"] for each in found[-2:]] == ["canary", "rolled_back"]
    assert (learner.promoted, levels.read()) == (0, [0.0, 0.0])
