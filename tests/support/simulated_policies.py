"""A learner of whose policies only the chances of being right exist."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from pathlib import Path

from support.self_scored import SelfScored
from support.verification_harness import VerificationHarness

from sapo_client.node.training.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import CanaryFile
from sapo_client.node.training.family_evidence import Assigned
from sapo_client.observe.events import EventLog
from sapo_protocol.identifiers import Account

ALIKE = 0.7
"""Part of the items on which a policy and its shadow answer alike, as in the lab's runs."""


class SimulatedPolicies:
    """A policy and its canary's shadow that are right with given chances in each family.

    Attributes:
        policy: chance of the policy, by family.
        good: that of its shadow.
        step: number of steps.
        kept: how often the policy became the shadow.
        returned: how often the shadow became the policy.
    """

    def __init__(
        self, checker: SelfScored, policy: Sequence[float], shadow: Sequence[float], rng: random.Random
    ) -> None:
        self.checker, self.policy, self.good = checker, list(policy), list(shadow)
        self.step = self.kept = self.returned = 0
        self._rng = rng
        self._luck: list[float] = []

    async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Return the policy's answers."""
        self._luck = [self._rng.random() for _ in prompts]
        return self._said(self.policy, self._luck)

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Return the shadow's answers, alike on a part of the items."""
        luck = [one if self._rng.random() < ALIKE else self._rng.random() for one in self._luck]
        return self._said(self.good, luck)

    async def keep_good(self) -> None:
        """Let the policy become the shadow."""
        self.good = list(self.policy)
        self.kept += 1

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """Let the shadow become the policy."""
        self.policy = list(self.good)
        self.returned += 1

    def _said(self, chances: Sequence[float], luck: Sequence[float]) -> tuple[bytes, ...]:
        asked = self.checker.families[-len(luck) :]
        return tuple(
            b"right" if one < chances[each] else b"wrong" for each, one in zip(asked, luck, strict=True)
        )


def simulated_canary(
    folder: Path,
    desk: VerificationHarness,
    learner: SimulatedPolicies,
    *,
    secret: bytes = b"secret",
    events: EventLog | None = None,
    assigned: Assigned | None = None,
) -> Canary:
    """Return a canary that checks simulated policies after every round.

    Args:
        folder: of its file, and of its events if none are given.
        desk: the node whose sampler it closes.
    """
    families = desk.manifest.suite.families
    parts = CanaryParts(
        learner=learner,
        checkers=learner.checker,
        sampler=desk.sampler,
        pool=desk.pool,
        demonstrations=desk.engine.demonstrations,
        events=EventLog(folder / "events.jsonl", clock=lambda: 0.0) if events is None else events,
        file=CanaryFile(folder / "canary.json", families, fresh=True),
        secret=secret,
        families=len(families),
        assigned=assigned,
    )
    return Canary(CanarySettings(every_rounds=1), parts)
