"""The canary: held-out items that show when training on others' text has harmed the policy.

Every so many rounds the policy answers the same items greedily; the answers are not published. Their seeds
follow from the node's secret key, so no attacker can leave them unharmed. The reward is compared with a
control: the rewards of the checks before (``canary_state``). After two falls below it in a row, the last good
checkpoint is restored, the waiting rollouts and demonstrations of all accounts in the window since then are
dropped, and no external text is used. Each later check that passes raises J by one again, and in the same
proportion the number of demonstrations.

A second policy trained on own rollouts alone would be the better control, at twice the cost. With this one,
a fall that own training caused looks the same; but a fall in a window without external text is accepted as
the new level, for then no other account can have caused it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

from sapo_client.node.training.canary_state import CanaryFile, CanaryState
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.tasks import Task
from sapo_verification.jail.checkers import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sapo_client.learner.backend import Backend
    from sapo_client.observe.events import EventLog
    from sapo_protocol.identifiers import Account
    from sapo_verification.jail.messages import Checked
    from sapo_verification.sampling.demonstrations import DemonstrationPool
    from sapo_verification.sampling.pool import Pool
    from sapo_verification.sampling.sampler import Sampler
    from sapo_verification.types import SampledBatch, VerifiedRollout

FALLS: Final = 2
"""In a row; a single one can be chance."""

_SEED_BITS: Final = 31
_MOST_DRAWS: Final = 4
"""Draws per item: a few seeds of some families have no task."""


class Checkers(Protocol):
    """Interface that derives items and scores answers."""

    async def prompt(self, task: Task) -> str:
        """Return the task's prompt."""
        ...

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """Return a task's prompt, and the reward of each completion."""
        ...


@dataclass(frozen=True, slots=True)
class CanarySettings:
    """Settings of the canary.

    Attributes:
        every_rounds: rounds between two checks; 0 for none at all.
        items: held-out items per check, over all families.
        tolerance: largest shortfall of the reward, as a part of the control.
    """

    every_rounds: int = 20
    items: int = 64
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True)
class CanaryParts:
    """The parts that the canary works with.

    Attributes:
        secret: known to this node only; the items follow from it.
        families: number of families in the suite.
    """

    learner: Backend
    checkers: Checkers
    sampler: Sampler
    pool: Pool
    demonstrations: DemonstrationPool
    events: EventLog
    file: CanaryFile
    secret: bytes
    families: int


class CanaryRole(Protocol):
    """Monitor of the policy between rounds."""

    async def open(self) -> None:
        """Prepare before the first round; later calls do nothing."""

    async def after(self, batch: SampledBatch) -> None:
        """Record that a round was trained on a batch."""


class NoCanary:
    """The role without a monitor: in an experiment, or in a node that does not train."""

    async def open(self) -> None:
        """Do nothing."""

    async def after(self, batch: SampledBatch) -> None:
        """Do nothing."""


class Canary:
    """Monitor of one policy."""

    def __init__(self, settings: CanarySettings, parts: CanaryParts) -> None:
        self._settings = settings
        self._parts = parts
        self._items: list[tuple[Task, str]] = []
        self._watch: CanaryState | None = None
        self._window: list[VerifiedRollout] = []
        self._imitated: set[Account] = set()
        self._rounds = 0
        self._most_external = parts.sampler.most_external

    async def open(self) -> None:
        """Draw the items and measure the control before the first round; later calls do nothing.

        Raises:
            LearnerCrashed: nothing was prepared; call again.
        """
        if self._items or not self._settings.every_rounds:
            return
        items = await self._draw_items()
        self._watch = self._parts.file.read(len(items))
        if self._watch is None:
            self._watch = CanaryState.begin(await self._measure(items))
            await self._parts.learner.keep_good()
            self._parts.file.write(self._watch, len(items))
        else:
            self._parts.sampler.most_external = min(self._most_external, self._watch.most_external)
        self._items = items

    async def after(self, batch: SampledBatch) -> None:
        """Record a trained round; check the policy when a check is due.

        Raises:
            LearnerCrashed: the check is made after the next round instead.
        """
        if self._watch is None:
            return
        self._window.extend(batch.external)
        self._imitated.update(each.account for each in batch.demonstrations)
        self._rounds += 1
        if self._rounds < self._settings.every_rounds:
            return
        await self._check(self._watch)
        self._rounds = 0

    async def _check(self, before: CanaryState) -> None:
        reward = await self._measure(self._items)
        lowest = before.lowest(len(self._items), self._settings.tolerance)
        watch = before.after(reward, lowest)
        if watch.falls and not self._window and not self._imitated:
            watch = CanaryState.begin(reward, watch.most_external)
        self._parts.events.write(
            "canary",
            step=self._parts.learner.step,
            reward=round(reward, 4),
            control=round(before.control, 4),
            lowest=round(lowest, 4),
            falls=watch.falls,
            external=len(self._window),
            imitated=len(self._imitated),
        )
        if watch.falls == 0:
            watch = await self._accept(watch)
        elif watch.falls >= FALLS:
            watch = await self._roll_back(watch, reward)
        self._watch = watch
        self._parts.file.write(watch, len(self._items))

    async def _accept(self, watch: CanaryState) -> CanaryState:
        """Keep the current policy as the one to restore; raise a lowered J by one; return the new state."""
        await self._parts.learner.keep_good()
        self._window.clear()
        self._imitated.clear()
        return self._limited(watch, self._parts.sampler.most_external + 1)

    async def _roll_back(self, watch: CanaryState, reward: float) -> CanaryState:
        """Restore the last good policy and set J to 0; return the new state."""
        await self._parts.learner.roll_back()
        accounts = {rollout.account for rollout in self._window} | self._imitated
        for account in accounts:
            self._parts.demonstrations.drop(account)
        waiting = [each.content_id for account in accounts for each in self._parts.pool.waiting(account)]
        self._parts.events.write(
            "rolled_back",
            step=self._parts.learner.step,
            reward=round(reward, 4),
            control=round(watch.control, 4),
            quarantined=[
                {"content_id": rollout.content_id, "account": rollout.account} for rollout in self._window
            ],
            imitated=sorted(self._imitated),
            dropped=sum(self._parts.pool.take(content_id) for content_id in waiting),
        )
        self._window.clear()
        self._imitated.clear()
        return self._limited(replace(watch, falls=0), 0)

    def _limited(self, watch: CanaryState, most_external: int) -> CanaryState:
        """Set J, at most to the sampling policy's; return the new state."""
        self._parts.sampler.most_external = min(self._most_external, most_external)
        return replace(watch, most_external=self._parts.sampler.most_external)

    async def _measure(self, items: Sequence[tuple[Task, str]]) -> float:
        """Return the share of the items that the policy's greedy answer gets right."""
        answers = await self._parts.learner.evaluate([prompt for _, prompt in items])
        right = 0.0
        for (task, _), answer in zip(items, answers, strict=True):
            try:
                right += (await self._parts.checkers.check(task, (answer,))).rewards[0]
            except CheckFailed:
                continue  # an answer that breaks its checker earns nothing
        return right / len(items)

    async def _draw_items(self) -> list[tuple[Task, str]]:
        """Return the held-out items with their prompts, families in turn."""
        rng = random.Random(sha256(b"sapo canary" + self._parts.secret).digest())
        items: list[tuple[Task, str]] = []
        for number in range(_MOST_DRAWS * self._settings.items):
            task = Task(number % self._parts.families, rng.getrandbits(_SEED_BITS))
            try:
                items.append((task, await self._parts.checkers.prompt(task)))
            except CheckFailed:
                continue
            if len(items) == self._settings.items:
                return items
        raise LocalProtocolError("the suite yields no items for the canary")
