"""The learner of experiments: the node's own service, in this process, in virtual time, with a journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from typing import Final, TypeVar

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.attackers import marks
from sapo_client.lab.exposure import Exposure
from sapo_client.lab.held_out import HeldOut, pass_at_1
from sapo_client.lab.journal import CurvePoint, Journal, JournalEntry
from sapo_client.lab.plan import Run
from sapo_client.learner.backend import Generation
from sapo_client.learner.report import StepReport
from sapo_client.learner.service import Service
from sapo_client.learner.wire import train_arguments
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.types import SampledBatch, VerifiedRollout

GENERATE_SECONDS: Final = 1.0
TRAIN_SECONDS: Final = 1.0
"""Virtual duration of a training step, the same on every machine, so that every agent's messages arrive
between two of its draws."""

ROUND_SECONDS: Final = GENERATE_SECONDS + TRAIN_SECONDS

INTRODUCTION_SECONDS: Final = 4
"""Virtual time before the first round; by then every certificate has reached all agents of its islands."""

T = TypeVar("T")

Groups = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class _Round:
    """Results of the current round so far."""

    calls: list[Groups]
    own: list[VerifiedRollout]
    tokens: int = 0
    seconds: float = 0.0


class LocalLearner:
    """The learner interface of `Rounds`: replays the journal up to the checkpoint, then runs a `Service`.

    Args:
        on_round: called with every finished round of an agent that trains.
        trains: whether the agent trains; a teacher only answers, and is not evaluated.
    """

    def __init__(
        self,
        run: Run,
        agent: int,
        service: Service,
        journal: Journal,
        held_out: HeldOut,
        on_round: Callable[[CurvePoint], None],
        *,
        trains: bool = True,
    ) -> None:
        self.step = 0
        self.restarts = 0
        self.last_death = ""
        self.exposure: Exposure | None = None
        self._run = run
        self._agent = agent
        self._service = service
        self._journal = journal
        self._held_out = held_out
        self._on_round = on_round
        self._trains = trains
        self._replayed = journal.rewind(service.about()["step"])
        self._handles = count(1)
        self._round = _Round([], [])
        self._rolled_back = 0

    def see(self, own: VerifiedRollout) -> None:
        """Record an own rollout that was scored, trained or not."""
        self._round.own.append(own)

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """See ``Learner.generate``."""
        await trio.sleep(GENERATE_SECONDS)
        handles = [next(self._handles) for _ in prompts]
        if self._is_replaying:
            groups = self._replayed[self.step].calls[len(self._round.calls)]
        else:
            groups = self._generate(list(prompts), completions_per_prompt, handles)
        self._round.calls.append(groups)
        encoded = [tuple(text.encode() for text in group) for group in groups]
        return tuple(map(Generation, handles, encoded))

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """See ``Learner.train``."""
        await trio.sleep(TRAIN_SECONDS)
        digest = _digest(batch)
        if self._is_replaying:
            entry = self._replayed[self.step]
            self._require_same_path(entry, digest)
        else:
            entry = self._train(batch, handles, digest)
        self.step += 1
        self._round = _Round([], [])
        if self.exposure is not None:
            self.exposure.begin_round()
        if self._trains:
            self._on_round(entry.row)
        return entry.report

    async def evaluate(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """See ``Learner.evaluate``."""
        return self._timed(lambda: self._service.evaluate(list(prompts))["completions"])

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """See ``Learner.compare``; the answers are in the journal like those that are trained."""
        if self._is_replaying:
            answers = self._replayed[self.step].calls[len(self._round.calls)]
        else:
            answers = self._compare(list(prompts), seed)
        self._round.calls.append(answers)
        of_policy, of_candidate = (tuple(text.encode() for text in texts) for texts in answers)
        return of_policy, of_candidate

    async def promote(self) -> None:
        """See ``Learner.promote``; a checkpoint holds what was promoted before it."""
        if not self._is_replaying:
            self._timed(self._service.promote)

    async def keep_good(self) -> None:
        """See ``Learner.keep_good``."""
        self._timed(self._service.keep_good)

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """See ``Learner.roll_back``."""
        self._rolled_back += 1
        self._timed(lambda: self._service.roll_back([bytes(account) for account in planters]))

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """See ``Learner.shadow``."""
        return self._timed(lambda: self._service.shadow(list(prompts))["completions"])

    def _timed(self, call: Callable[[], T]) -> T:
        """Call a service, add the duration to the current round, and return the result."""
        started = time.process_time()
        found = call()
        self._round.seconds += time.process_time() - started
        return found

    @property
    def _is_replaying(self) -> bool:
        return self.step < len(self._replayed)

    def _generate(self, prompts: list[str], completions: int, handles: list[int]) -> Groups:
        sampled = self._timed(lambda: self._service.generate(prompts, completions, handles))
        self._round.tokens += sampled["tokens"]
        return tuple(tuple(text.decode() for text in group) for group in sampled["completions"])

    def _compare(self, prompts: list[str], seed: int) -> Groups:
        found = self._timed(lambda: self._service.compare(prompts, seed))
        self._round.tokens += found["tokens"]
        return tuple(tuple(text.decode() for text in found[whose]) for whose in ("policy", "candidate"))

    def _train(self, batch: SampledBatch, handles: Mapping[ContentId, int], digest: str) -> JournalEntry:
        """Train a step and append it to the journal; save a checkpoint if one is due."""
        arguments = train_arguments(batch, handles) if self._trains else {"groups": []}
        report = StepReport(**self._timed(lambda: self._service.train(**arguments)))
        entry = JournalEntry(self._row(batch, report), report, tuple(self._round.calls), digest)
        self._journal.append(entry)
        if not self._run.plan.canary and report.step % self._run.plan.checkpoint_every == 0:
            self._service.checkpoint()
        return entry

    def _row(self, batch: SampledBatch, report: StepReport) -> CurvePoint:
        plan, own = self._run.plan, self._round.own
        row = CurvePoint(
            round=report.step,
            agent=self._agent,
            batch=report.mean_reward,
            local=sum(rollout.mean_reward for rollout in own) / len(own) if own else 0.0,
            informative=sum(rollout.is_informative for rollout in own) / len(own) if own else 0.0,
            external=report.external_groups,
            generated_tokens=self._round.tokens,
            trained_tokens=report.tokens,
            entropy=report.entropy,
            seconds=self._round.seconds,
            held_out=None,
            greedy=None,
            rolled_back=self._rolled_back,
        )
        row = row if self.exposure is None else self.exposure.added_to(row, batch)
        is_due = self._trains and (report.step in (1, plan.rounds) or report.step % plan.evaluate_every == 0)
        return self._evaluated(row) if is_due else row

    def _evaluated(self, row: CurvePoint) -> CurvePoint:
        """Return the row with an evaluation on the held-out set."""
        seed = self._run.evaluation_seed(self._agent, row.round)
        sampled = self._held_out.answers(self._service, self._run.plan.temperature, seed)
        greedy = self._held_out.answers(self._service, 0.0, seed)
        return replace(row, held_out=pass_at_1(sampled), greedy=pass_at_1(greedy), marks=marks.found(sampled))

    def _require_same_path(self, entry: JournalEntry, digest: str) -> None:
        if entry.batch != digest:
            raise SapoError(
                f"agent {self._agent}'s batch of step {entry.report.step} differs from its journal",
                hint="another version started this run: remove its folder to start it again",
                exit_code=ExitCode.DATA,
            )


def _digest(batch: SampledBatch) -> str:
    parts = [bytes(group.rollout.content_id) for group in batch.groups]
    parts += [bytes(group.hint.content_id) for group in batch.practised]
    parts += [sha256(each.completion).digest() for each in batch.demonstrations]
    return sha256(b"".join(parts)).hexdigest()
