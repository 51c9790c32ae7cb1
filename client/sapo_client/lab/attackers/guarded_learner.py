"""The learner of ``guarded``: a node's service, promotion, canary, rehearsal and judgement of steps."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Final

import torch

from sapo_client.config import LearnerConfig
from sapo_client.lab.agent import MEMORY
from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.held_out import HeldOut, pass_at_1
from sapo_client.lab.simulate import GENESIS_SECONDS
from sapo_client.learner.backend import Generation
from sapo_client.learner.policy import load_policy
from sapo_client.learner.report import StepReport
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message, train_arguments
from sapo_client.node.training.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import CanaryFile
from sapo_client.node.training.promotion import Promotion, after_round
from sapo_client.node.training.rehearsal import Rehearsal, posed
from sapo_client.observe.events import EventLog
from sapo_protocol.constants import SEED_BITS
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.suite import Family
from sapo_protocol.tasks import Task
from sapo_verification.engine import Engine
from sapo_verification.sampling.sampler import OPEN, filled_part
from sapo_verification.sampling.step_values import StepValue, StepValues
from sapo_verification.suites.catalogue import suite
from sapo_verification.types import Demonstration, Pair

COMPLETIONS: Final = 8
OWN_TASKS: Final = 4
"""Own tasks of each family in a round, which is what a node answers of eight a round in two families."""

MAX_NEW_TOKENS: Final = 96
TASKS: Final = LearnerConfig().comparison_tasks


@dataclass(frozen=True, slots=True)
class GuardPlan:
    """Settings of a run.

    Attributes:
        tactic: name of the attackers' tactic.
        start: initial policy, as in `sapo join --model`.
        noise: standard deviation of the noise on each matrix, as a part of that of its weights.
        taught: family that all accounts teach with right steps.
        target: family that attackers want to be lost.
        honest: number of honest accounts.
        attackers: number of attackers.
        texts: texts of each account in a round.
        rounds: number of rounds.
        canary: rounds between two checks; 0: no canary.
        steps: most supervised steps of a round.
        per_step: most texts of a step; as many own right answers are rehearsed.
        every: rounds between two evaluations.
        held_out: items of each family in an evaluation.
    """

    tactic: str = "honest"
    start: str = "specialist-a"
    noise: float = 0.25
    taught: str = "basic_arithmetic"
    target: str = "fraction_simplification"
    honest: int = 2
    attackers: int = 3
    texts: int = 12
    rounds: int = 18
    canary: int = 3
    steps: int = 16
    per_step: int = 32
    every: int = 3
    held_out: int = 48
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TaughtText(Demonstration):
    """A right answer that an account of the run shows.

    Attributes:
        author: its account.
    """

    author: Account

    @property
    def account(self) -> Account:
        """The author's account."""
        return self.author


class _Calls:
    """The learner's interface for promotion, canary and rehearsal, in this process."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._handles = 0
        self.promoted = self.rolled_back = 0

    @property
    def step(self) -> int:
        """Number of steps so far."""
        return int(self._service.about()["step"])

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """See ``Learning.generate``."""
        handles = list(range(self._handles, self._handles + len(prompts)))
        self._handles += len(prompts)
        found = self._service.generate(list(prompts), completions_per_prompt, handles)["completions"]
        return tuple(map(Generation, handles, map(tuple, found)))

    async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """See ``Monitored.evaluate``."""
        return tuple(self._service.evaluate(list(prompts))["completions"])

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """See ``Candidates.compare``."""
        found = self._service.compare(list(prompts), seed)
        return tuple(found["policy"]), tuple(found["candidate"])

    async def promote(self) -> None:
        """See ``Candidates.promote``."""
        self.promoted += 1
        self._service.promote()

    async def keep_good(self) -> None:
        """See ``Monitored.keep_good``."""
        self._service.keep_good()

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """See ``Monitored.roll_back``."""
        self.rolled_back += 1
        self._service.roll_back([bytes(account) for account in planters])

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """See ``Monitored.shadow``."""
        return tuple(self._service.shadow(list(prompts))["completions"])


class GuardedLearner:
    """A learner in this process, taught by accounts without a network.

    Args:
        families: of the suite; the tasks of all of them are answered.
        folder: for its checkpoints and events.
    """

    def __init__(self, plan: GuardPlan, families: tuple[Family, ...], folder: Path) -> None:
        self._plan = plan
        self._families = families
        self._rng = random.Random(f"{plan.seed}/guarded learner")
        self._checker = LocalChecker(families)
        self._service = Service(_settings(plan, folder))
        self._calls = _Calls(self._service)
        events = EventLog(folder / "events.jsonl", clock=lambda: 0.0)
        own = Account(bytes(Account.SIZE))
        key = sha256(f"guarded {plan.seed}".encode()).digest()
        self._engine = Engine(
            _manifest(families), MEMORY, own=own, check=self._checker.check, beacon_of=_no_beacon, key=key
        )
        self._success = [0.0] * len(families)
        self._values = StepValues()
        self._promotion = Promotion(
            self._calls, self._checker, events, families=len(families), tasks=TASKS, rng=self._rng
        )
        self._rehearsal = Rehearsal(
            self._calls,
            self._checker,
            events,
            families=len(families),
            success=self._success.__getitem__,
            rng=self._rng,
        )
        self._canary = Canary(
            CanarySettings(every_rounds=plan.canary),
            CanaryParts(
                learner=self._calls,
                checkers=self._checker,
                sampler=self._engine.sampler,
                pool=self._engine.pool,
                demonstrations=self._engine.demonstrations,
                events=events,
                file=CanaryFile(folder / "canary.json", families, fresh=True),
                secret=key,
                families=len(families),
            ),
        )
        self._held_out = HeldOut.of(families, plan.held_out)

    @property
    def promoted(self) -> int:
        """Number of promotions so far."""
        return self._calls.promoted

    @property
    def rolled_back(self) -> int:
        """Number of times that the canary went back."""
        return self._calls.rolled_back

    @property
    def set_aside(self) -> frozenset[Pair]:
        """Pairs of account and family whose steps are not trained."""
        return self._values.misleading() | self._engine.sampler.quarantine

    async def open(self) -> None:
        """Keep the initial policy as the first good one."""
        await self._canary.open()

    async def round(self, shown: Sequence[TaughtText]) -> None:
        """Answer own tasks, take what may be taken of the texts, train, and check."""
        groups = await self._own_groups()
        taken = self._taken(shown)
        set_aside = self.set_aside
        rehearsed = await self._rehearsal.answers()
        batch = self._engine.sampler.assemble((), (), demonstrations=taken, rehearsed=rehearsed)
        messages = train_arguments(batch, {})
        forgotten = [(bytes(account), place) for account, place in sorted(set_aside)]
        report = StepReport(**self._service.train(**{**messages, "groups": groups, "forgotten": forgotten}))
        self._rehearsal.missing = report.own_answers_missing
        self._judge(taken, report)
        await after_round(
            self._canary, self._promotion, batch, step=report.step, has_candidate=report.has_candidate
        )

    def held_out(self) -> dict[str, float]:
        """Return the policy's pass@1 by family at temperature 1."""
        return pass_at_1(self._held_out.answers(self._service, 1.0, self._plan.seed))

    async def _own_groups(self) -> list[Message]:
        """Return own groups of tasks of all families as the learner takes them; remember the success."""
        drawn = [
            Task(place, self._rng.getrandbits(SEED_BITS))
            for place in range(len(self._families))
            for _ in range(OWN_TASKS)
        ]
        asked = await posed(self._checker, drawn)
        prompts = [prompt for _, prompt in asked]
        found = await self._calls.generate(prompts, completions_per_prompt=COMPLETIONS)
        groups = []
        for (task, prompt), group in zip(asked, found, strict=True):
            rewards = (await self._checker.check(task, group.completions)).rewards
            before = self._success[task.family]
            self._success[task.family] = before + (fmean(rewards) - before) / OWN_TASKS
            groups.append(
                {
                    "prompt": prompt,
                    "completions": list(group.completions),
                    "rewards": list(rewards),
                    "external": False,
                    "family": task.family,
                    "handle": group.handle,
                }
            )
        return groups

    def _taken(self, shown: Sequence[TaughtText]) -> tuple[Demonstration, ...]:
        """Return the texts that sampler and canary let through."""
        sampler, misleading = self._engine.sampler, self._values.misleading()
        quarantined = {account for account, _ in sampler.quarantine}
        texts = [
            each
            for each in shown
            if sampler.need(self._success[each.family])
            and each.account not in quarantined
            and self._rng.random() < filled_part(self._values, misleading, each.account, each.family)
        ]
        return tuple(texts[: len(texts) * sampler.opening // OPEN])

    def _judge(self, taken: Sequence[Demonstration], report: StepReport) -> None:
        """Record the figures of each account's steps."""
        unrelated = self._values.unrelated()
        accounts = {each.account for each in taken} - unrelated
        self._values.learn(
            (
                (text.account, text.family, StepValue(value[0], tuple(value[1])))
                for text, value in zip(taken, report.step_values, strict=True)
                if value is not None
            ),
            dict.fromkeys(accounts, 1.0),
        )


def _settings(plan: GuardPlan, folder: Path) -> LearnerSettings:
    return LearnerSettings(
        model=str(_noisy(plan, folder / "start")),
        directory=folder / "learner",
        seed=plan.seed,
        max_new_tokens=MAX_NEW_TOKENS,
        device="cpu",
        bfloat16=False,
        checkpoint_share=0.0,
        fresh=True,
        own_steps_kept=plan.canary,
        demonstration_steps=plan.steps,
        demonstrations_per_step=plan.per_step,
        held_back=True,
        shows_steps=True,
    )


def _noisy(plan: GuardPlan, folder: Path) -> Path:
    """Write the initial policy with noise on its weights; return its folder."""
    policy = load_policy(plan.start, "cpu")
    noise = torch.Generator().manual_seed(plan.seed)
    with torch.no_grad():
        for weight in policy.model.parameters():
            if weight.dim() > 1:
                weight.add_(plan.noise * weight.std() * torch.randn(weight.shape, generator=noise))
    policy.save(folder)
    return folder


def _manifest(families: tuple[Family, ...]) -> Manifest:
    return Manifest(
        name="lab",
        genesis_seconds=GENESIS_SECONDS,
        epoch_seconds=60,
        suite=suite("worked", tuple(each.name for each in families)),
        limits=Limits(slots_per_epoch=64, max_completions=COMPLETIONS, points_per_epoch=64),
    )


def _no_beacon(_epoch: int) -> None:
    """Return that no epoch's beacon is known: no message of an account is ever admitted here."""
