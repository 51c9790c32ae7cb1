"""`sapo lab judge`: score answers to the judge's questions again, and compare swarm with isolated nodes.

The paper's open demo (arXiv 2509.08721, Figure 3) accumulates the reward of one answer per round. Here the
question of every answer that a node recorded is derived again, and the answer is scored in the jail; an entry
that differs is refused. If this machine has no time to score an answer, it stays undecided. Nodes are
compared after a number of questions that all of them have answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final

import trio
from pydantic import BaseModel, NonNegativeInt

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.statistics import Estimate, estimate
from sapo_client.node.runtime.manifests import kept_manifest, read_manifest, require_same_suite
from sapo_client.node.training.judge_client import question
from sapo_client.observe.events import Event, read_events
from sapo_client.paths import DataDir
from sapo_protocol.epochs import beacon
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Manifest
from sapo_verification.jail.checkers import CheckerPool, CheckFailed

DEADLINE_SECONDS: Final = 30.0
"""Long, because these checks are not urgent, and a busy machine must not make an answer count as wrong."""


class _Judged(BaseModel):
    """A `judged` event; the event file may come from a stranger."""

    step: NonNegativeInt
    epoch: NonNegativeInt
    account: str
    beacon: str
    family: str
    answer: str
    reward: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """Answers of one node.

    Attributes:
        rewards: rewards in the order of its answers, each scored here.
        refused: number of answers whose recorded question or reward is wrong.
        undecided: number of answers for which this machine had no time.
    """

    folder: Path
    rewards: tuple[float, ...]
    refused: int
    undecided: int = 0

    def pass_at_1(self, questions: int) -> float:
        """Return the share of right answers among its first ``questions``."""
        return sum(self.rewards[:questions]) / questions

    def cumulative(self, questions: int) -> list[float]:
        """Return the cumulative reward after each of its first ``questions``."""
        return list(accumulate(self.rewards[:questions]))


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """Both groups' pass@1 after the same number of questions; nodes are the repetitions."""

    questions: int
    swarm: Estimate | None
    isolated: Estimate | None


def examine(folders: Sequence[Path]) -> list[Candidate]:
    """Score the answers in data directories of one swarm again.

    Raises:
        SapoError: one of them has none, or belongs to another swarm.
    """
    manifest = kept_manifest(DataDir(folders[0]))
    for folder in folders[1:]:
        if read_manifest(DataDir(folder).manifest).swarm_id != manifest.swarm_id:
            raise SapoError(
                f"{folder} belongs to another swarm than {folders[0]}",
                hint="compare nodes of one swarm: others have other tasks",
                exit_code=ExitCode.USAGE,
            )
    require_same_suite(manifest)
    found = trio.run(_examine, manifest, folders)
    if silent := [each.folder for each in found if not each.rewards]:
        raise SapoError(
            f"{silent[0]} holds no valid answer to the judge",
            hint="let its node run with SAPO_JUDGE__EVERY=1; if this machine is busy, try again later",
            exit_code=ExitCode.DATA,
        )
    return found


def compare(swarm: Sequence[Candidate], isolated: Sequence[Candidate]) -> JudgeResult:
    """Compare pass@1 of both groups."""
    questions = min(len(each.rewards) for each in (*swarm, *isolated))
    ours, theirs = (
        estimate([each.pass_at_1(questions) for each in group]) if group else None
        for group in (swarm, isolated)
    )
    return JudgeResult(questions, ours, theirs)


async def _examine(manifest: Manifest, folders: Sequence[Path]) -> list[Candidate]:
    async with trio.open_nursery() as nursery:
        pool = CheckerPool(manifest.suite, deadline_seconds=DEADLINE_SECONDS)
        await nursery.start(pool.run)
        found = [await _candidate(manifest, folder, pool) for folder in folders]
        nursery.cancel_scope.cancel()
    return found


async def _candidate(manifest: Manifest, folder: Path, pool: CheckerPool) -> Candidate:
    """Score a node's first answer to every question."""
    answered: dict[str, Event] = {}
    for event in read_events(DataDir(folder).events):
        if event["event"] == "judged":
            answered.setdefault(str(event.get("step")), event)
    candidate = Candidate(folder, (), 0)
    for event in answered.values():
        try:
            reward = await _rescored(manifest, event, pool)
        except CheckFailed:
            candidate = replace(candidate, undecided=candidate.undecided + 1)
            continue
        if reward is None:
            candidate = replace(candidate, refused=candidate.refused + 1)
        else:
            candidate = replace(candidate, rewards=(*candidate.rewards, reward))
    return candidate


async def _rescored(manifest: Manifest, event: Event, pool: CheckerPool) -> float | None:
    """Return the reward of an answer, or None if its node recorded another question or reward.

    With a chain the beacon is taken from the node's record; it can be checked on the chain.

    Raises:
        CheckFailed: this machine is the cause that there is no result.
    """
    try:
        line = _Judged.model_validate(event)
        claimed_beacon, account = Digest.from_hex(line.beacon), Account.from_hex(line.account)
        answer = bytes.fromhex(line.answer)
    except (ValueError, LocalProtocolError):
        return None
    if not manifest.has_chain and claimed_beacon != beacon(manifest.swarm_id, line.epoch, b""):
        return None
    task = question(manifest, claimed_beacon, account, line.step)
    if manifest.suite.families[task.family].name != line.family:
        return None
    try:
        [reward] = (await pool.check(task, (answer,))).rewards
    except CheckFailed as failed:
        if failed.reason.decides_nothing:
            raise
        return None
    return reward if reward == line.reward else None
