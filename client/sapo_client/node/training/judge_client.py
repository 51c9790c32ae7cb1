"""The judge: tasks that a node can neither choose nor train on, each answered once after a step.

The SAPO paper's open demo asks a node for one answer after each round, scores it and sums the rewards.
Here there is no server: a question is derived from the epoch's beacon, the account and the step, at a slot
above the quota, which no rollout may use. So anyone can derive it and score its answer again (`sapo lab
judge`). It cannot be checked that the answer is the policy's first one, so use this only to compare your own
nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sapo_client.observe.events import EventLog
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.jail.messages import Checked


class Answering(Protocol):
    """Interface of a policy that answers prompts."""

    async def evaluate(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> tuple[bytes, ...]:
        """See ``Learner.evaluate``."""
        ...


class Checking(Protocol):
    """Interface that derives prompts and scores answers."""

    async def check(self, task: Task, completions: Sequence[bytes]) -> Checked:
        """See ``CheckerPool.check``."""
        ...


class JudgeRole(Protocol):
    """Service that asks the policy a question between rounds."""

    async def after(self, step: int, epoch: int, beacon: Digest) -> None:
        """Ask the question of a step, if it has one."""


class NoJudge:
    """The null object if no judge is configured."""

    async def after(self, step: int, epoch: int, beacon: Digest) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class JudgeClient:
    """Evaluation of the policy on a judge's question after every so many steps.

    Attributes:
        every: steps between two questions; 0 asks none.
        temperature: of the answers, that of training.
    """

    manifest: Manifest
    account: Account
    learner: Answering
    checkers: Checking
    events: EventLog
    every: int
    temperature: float

    async def after(self, step: int, epoch: int, beacon: Digest) -> None:
        """Ask the question of a step, if it has one, and report the answer and its reward."""
        if not self.every or step % self.every:
            return
        task = question(self.manifest, beacon, self.account, step)
        try:
            prompt = (await self.checkers.check(task, ())).prompt
            [answer] = await self.learner.evaluate([prompt], temperature=self.temperature, seed=task.seed)
            [reward] = (await self.checkers.check(task, (answer,))).rewards
        except CheckFailed:
            return  # a seed without a task, or a worker that died: this step has no question
        family = self.manifest.suite.families[task.family].name
        self.events.write(
            "judged", step=step, epoch=epoch, account=self.account, beacon=beacon, family=family,
            answer=answer, reward=reward,
        )  # fmt: skip


def question(manifest: Manifest, beacon: Digest, account: Account, step: int) -> Task:
    """Return the judge's task of an account at a step."""
    slot = manifest.limits.slots_per_epoch + step
    first = assigned_task(manifest.swarm_id, beacon, account=account, family=0, slot=slot)
    family = first.seed % len(manifest.suite.families)
    return assigned_task(manifest.swarm_id, beacon, account=account, family=family, slot=slot)
