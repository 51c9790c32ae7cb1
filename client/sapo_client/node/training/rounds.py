"""The training rounds: SAPO's Algorithm 1 for one node, one step per round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from sapo_client.learner.backend import Generation, LearnerCrashed
from sapo_client.learner.report import StepReport, TextValue
from sapo_client.node.runtime.shutdown import Pause
from sapo_client.node.training.ahead import Ahead
from sapo_client.node.training.canary_state import HeldOutResult
from sapo_client.node.training.epoch_turns import EpochTurns
from sapo_client.node.training.private_rounds import PrivateRounds
from sapo_client.node.training.promotion import after_round
from sapo_client.node.training.round_parts import RoundParts, Slot
from sapo_client.node.training.round_reporter import RoundReporter
from sapo_client.observe.status import RoundSummary
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import ContentId
from sapo_protocol.rollout import Rollout
from sapo_protocol.rules import Rule
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.sampling.step_values import JudgedSteps, StepValue
from sapo_verification.tasks.text_policy import group_fault
from sapo_verification.types import (
    Demonstration,
    PractisedGroup,
    SampledBatch,
    VerifiedRollout,
)

_CLOCK_SECONDS: Final = 5.0
"""Interval of reading the clock while the node waits for an epoch."""


class Rounds:
    """Loop of training rounds: draw tasks, generate, share, sample, train.

    Args:
        show: shows the summary of a round to the operator.

    Attributes:
        reporter: holds what the node's status says of the rounds.
    """

    def __init__(self, parts: RoundParts, show: Callable[[RoundSummary], None]) -> None:
        self._parts = parts
        self._epoch = -1
        self._restarts = 0
        self._last_step = 0
        self._stop_step: int | None = None
        self._ahead = None if parts.ahead is None else Ahead(parts.ahead, parts.completions)
        private = PrivateRounds(parts, trained=self._report, crashed=self._note_crash)
        self._turns = EpochTurns(parts, private)
        self.reporter = RoundReporter(parts, show)

    @property
    def held_out(self) -> HeldOutResult | None:
        """Results of the last check on held-out items; None before the first one."""
        return self._parts.canary.held_out

    async def run(self, last_step: int | None, draining: trio.Event, pause: Pause | None = None) -> None:
        """Run rounds until the policy has made its last step or the node drains; wait while it is paused."""
        self._stop_step = last_step
        while not self._is_over(draining):
            if pause is not None and pause.holds:
                await self._turns.turn_during(partial(pause.wait_until_over, draining))
                continue
            try:
                await self._round(draining)
            except LearnerCrashed as error:
                self._note_crash(error)

    def _is_over(self, draining: trio.Event) -> bool:
        last_step = self._stop_step
        return draining.is_set() or (last_step is not None and self._parts.learner.step >= last_step)

    def _note_crash(self, error: LearnerCrashed) -> None:
        self._restarts += 1
        self._report_restart(self._parts.learner.step, str(error))

    def _report_idle_restart(self) -> None:
        """Report a restart of the learner between two calls, before the first step after it."""
        if self._parts.learner.restarts > self._restarts:
            self._restarts = self._parts.learner.restarts
            why = self._parts.learner.last_death
            self._report_restart(self._last_step, f"the learner ended between two calls: {why}")

    def _report_restart(self, step: int, why: str) -> None:
        self._parts.telemetry.events.write("learner_restarted", step=step, why=why)

    async def _round(self, draining: trio.Event) -> None:
        parts, started = self._parts, trio.current_time()
        await parts.doppelganger.require_alone(draining)
        await parts.canary.open()
        epoch = await self._turns.wait_for_epoch(draining, partial(self._is_over, draining))
        if epoch is None:
            return
        self._epoch = epoch
        self._turns.turn_to(epoch)
        self.reporter.look_at_pool(parts.learner.step)
        answered, slots = self._take_ahead()
        slots += self._take_slots(epoch, parts.policy.local_groups - len(answered) - len(slots))
        if not (slots or answered):
            await self._wait_for_epoch(epoch + 1, draining)
            return
        batch, handles, next_slots = await self._sampled(epoch, answered, slots)
        report = await self._train(batch, handles, next_slots=next_slots, draining=draining)
        self._learn_about_others(epoch, batch, report)
        parts.rehearsal.missing = report.own_answers_missing
        self._report(epoch, batch, report, trio.current_time() - started)
        await after_round(
            parts.canary, parts.promotion, batch, step=report.step, has_candidate=report.has_candidate
        )
        await parts.judge.after(report.step, epoch, await parts.beacons.obtain(epoch))

    async def _sampled(
        self, epoch: int, answered: list[tuple[Slot, Generation]], slots: list[Slot]
    ) -> tuple[SampledBatch, Mapping[ContentId, int], int]:
        """Draw rollouts of others, answer and publish the own slots, and assemble the round's batch.

        Args:
            answered: own groups that were sampled ahead.
            slots: own ones to answer; more are taken in place of rollouts that the pool does not have.

        Returns:
            The batch, the learner's handle of each group that was sampled here, and the number of own groups.
        """
        parts, use = self._parts, self._parts.policy.text_use
        drawn = await parts.engine.draw(epoch, parts.rng) if use.reinforces or use.practises else ()
        wanted = parts.policy.local_groups + parts.policy.external_groups - len(drawn)
        slots += self._take_slots(epoch, wanted - len(answered) - len(slots))
        answered = await self._answer(answered, slots)
        local, handles = await self._redrawn(epoch, *await self._published(answered))
        practised, more = await self._practise(drawn) if use.practises else ((), {})
        batch = parts.engine.sampler.assemble(
            local,
            drawn if use.reinforces else (),
            practised=practised,
            demonstrations=await self._demonstrate(epoch),
            judged=parts.demonstrations.take_to_judge(epoch, parts.rng) if use.imitates else (),
            rehearsed=await parts.rehearsal.answers() if use.demonstrates else (),
        )
        return batch, {**handles, **more}, len(answered)

    def _learn_about_others(self, epoch: int, batch: SampledBatch, report: StepReport) -> None:
        """Pass what a step measured of others' text to the engine, which weighs its authors by it."""
        engine = self._parts.engine
        for rollout, weight in zip(batch.external, report.external_weights, strict=True):
            engine.sampler.likelihoods.learn(rollout.account, weight)
        for group in batch.practised:
            engine.sampler.usefulness.learn(group.hint.account, float(group.is_informative))
        if self._parts.policy.text_use.imitates:
            shown = len(batch.demonstrations)
            engine.judge_steps(
                epoch,
                _judged(batch.demonstrations, report.step_values[:shown]),
                _judged(batch.judged, report.step_values[shown:]),
            )

    def _take_slots(self, epoch: int, count: int) -> list[Slot]:
        """Reserve new slots, each with a family drawn uniformly as in the paper, or by what can be
        learned."""
        if count <= 0:
            return []
        parts, manifest, account = self._parts, self._parts.manifest, self._parts.author.account
        numbers = parts.signing.take_slots(
            manifest.swarm_id,
            account,
            epoch,
            count=count,
            slots_per_epoch=manifest.limits_at(epoch).slots_per_epoch,
            share=parts.share,
        )
        parts.doppelganger.slots_taken()
        return [
            Slot(
                epoch, number, parts.engine.task_of(epoch, account, self._draw_family(epoch, number), number)
            )
            for number in numbers
        ]

    def _draw_family(self, epoch: int, slot: int) -> int:
        """Return the family of a new slot as an index of the suite, one that its lot allows."""
        parts, families = self._parts, self._parts.manifest.suite.families
        allowed = parts.engine.levels.families_of(epoch, parts.author.account, slot)
        if (sampler := parts.policy.task_sampler) is not None:
            records = parts.engine.success.records(families)
            return allowed[sampler([records[family] for family in allowed], parts.rng)]
        if not parts.policy.learnable_tasks:
            return allowed[parts.rng.randrange(len(allowed))]
        chances = parts.engine.success.chances()
        return parts.rng.choices(allowed, [chances[family] for family in allowed])[0]

    async def _wait_for_epoch(self, epoch: int, draining: trio.Event) -> None:
        parts = self._parts
        parts.telemetry.events.write("quota_used", until_epoch=epoch)
        start_seconds = epoch_start_seconds(parts.manifest, epoch)
        # in short waits: timers stand still while the machine sleeps, and the clock may be set
        while (left := start_seconds - parts.clock()) > 0 and not draining.is_set():
            with trio.move_on_after(min(left, _CLOCK_SECONDS)):
                await draining.wait()

    def _take_ahead(self) -> tuple[list[tuple[Slot, Generation]], list[Slot]]:
        """Return the groups that were sampled during the last step, and the slots whose groups were lost."""
        if self._ahead is None:
            return [], []
        return self._ahead.take_answered(), self._ahead.take_unanswered()

    async def _train(
        self,
        batch: SampledBatch,
        handles: Mapping[ContentId, int],
        *,
        next_slots: int,
        draining: trio.Event,
    ) -> StepReport:
        """Train a step; with overlap, answer ``next_slots`` slots of the next round meanwhile, if there is
        one."""
        learner, last_step = self._parts.learner, self._stop_step
        is_last = draining.is_set() or (last_step is not None and learner.step + 1 >= last_step)
        if self._ahead is None or is_last:
            return await learner.train(batch, handles)
        posed = await self._posed(self._take_slots(self._epoch, next_slots))
        return await self._ahead.train(batch, handles, posed)

    async def _answer(
        self, answered: list[tuple[Slot, Generation]], slots: Sequence[Slot]
    ) -> list[tuple[Slot, Generation]]:
        """Answer the slots that were not answered ahead; after a crash all of them wait for the next
        round."""
        try:
            return answered + await self._answers(await self._posed(slots))
        except LearnerCrashed:
            if self._ahead is not None:
                self._ahead.lose([*(slot for slot, _ in answered), *slots])
            raise

    async def _posed(self, slots: Sequence[Slot]) -> list[tuple[Slot, str]]:
        """Return the slots that have a prompt, with their prompts."""
        return [(slot, prompt) for slot in slots if (prompt := await self._prompt(slot)) is not None]

    async def _answers(self, posed: Sequence[tuple[Slot, str]]) -> list[tuple[Slot, Generation]]:
        """Return a sampled group for each slot."""
        generations = await self._parts.learner.generate(
            [prompt for _, prompt in posed], completions_per_prompt=self._parts.completions
        )
        return [(slot, generation) for (slot, _), generation in zip(posed, generations, strict=True)]

    async def _published(
        self, answered: Sequence[tuple[Slot, Generation]]
    ) -> tuple[list[VerifiedRollout], Mapping[ContentId, int]]:
        """Publish own groups, and verify them like those of others.

        Returns:
            The verified rollouts, and the learner's handle of each.
        """
        local, handles = [], {}
        for slot, generation in answered:
            if generation.refusal is not None:
                self._skip(slot, str(generation.refusal.reason), generation.refusal.detail)
                continue
            try:
                verified = await self._publish(slot, generation)
            except RemoteProtocolError as error:
                refusal = {"reason": error.reason, "detail": error.detail}
                self._parts.telemetry.events.write("own_rollout_refused", **refusal)
                continue
            local.append(verified)
            handles[verified.content_id] = generation.handle
        return local, handles

    async def _practise(
        self, hints: Sequence[VerifiedRollout]
    ) -> tuple[tuple[PractisedGroup, ...], Mapping[ContentId, int]]:
        """Answer the tasks of other accounts' rollouts; the answers are scored and not published.

        Returns:
            The scored groups, and the learner's handle of each by the content id of its hint.
        """
        parts = self._parts
        generations = await parts.learner.generate(
            [hint.prompt for hint in hints], completions_per_prompt=parts.completions
        )
        practised, handles = [], {}
        for hint, generation in zip(hints, generations, strict=True):
            if generation.refusal is not None:
                refusal = {"content_id": hint.content_id, "detail": generation.refusal.detail}
                parts.telemetry.events.write("practice_failed", **refusal)
                continue
            try:
                practised.append(await parts.engine.practise(hint, generation.completions))
            except CheckFailed as error:
                parts.telemetry.events.write("practice_failed", content_id=hint.content_id, detail=str(error))
                continue
            handles[hint.content_id] = generation.handle
        return tuple(practised), handles

    async def _demonstrate(self, epoch: int) -> tuple[Demonstration, ...]:
        """Return right answers to imitate: of others, or own ones with others' answers as hints, if
        configured."""
        parts, use = self._parts, self._parts.policy.text_use
        if not use.demonstrates:
            return ()
        shown = parts.demonstrations.demonstrate(epoch, parts.rng)
        return await parts.rationaliser.own_solutions(shown) if use.rationalises and shown else shown

    async def _redrawn(
        self, epoch: int, local: list[VerifiedRollout], handles: Mapping[ContentId, int]
    ) -> tuple[list[VerifiedRollout], Mapping[ContentId, int]]:
        """Replace own rollouts without advantage by as many new ones (DAPO's dynamic sampling)."""
        left, size = self._parts.redraws, len(local)
        while without_advantage := sum(not rollout.is_informative for rollout in local):
            if not (slots := self._take_slots(epoch, min(left, without_advantage))):
                break
            left -= len(slots)
            fresh, more = await self._published(await self._answers(await self._posed(slots)))
            handles = {**handles, **more}
            local = sorted([*local, *fresh], key=lambda rollout: not rollout.is_informative)[:size]
        return local, handles

    async def _prompt(self, slot: Slot) -> str | None:
        """Return the prompt of a slot's task; None if the seed has no item (such as a division by zero)."""
        try:
            return await self._parts.checkers.prompt(slot.task)
        except CheckFailed as error:
            self._skip(slot, str(error.reason), str(error))
            return None

    def _skip(self, slot: Slot, reason: str, detail: str) -> None:
        """Report that a slot's task is not answered."""
        family = self._parts.manifest.suite.families[slot.task.family].name
        fields = {"slot": slot.slot, "family": family, "reason": reason, "detail": detail}
        self._parts.telemetry.events.write("slot_skipped", **fields)

    async def _publish(self, slot: Slot, generation: Generation) -> VerifiedRollout:
        """Sign, publish and verify an own group, unless other nodes would penalise its text."""
        parts, author = self._parts, self._parts.author
        family = parts.manifest.suite.families[slot.task.family]
        if (fault := group_fault(family, generation.completions)) is not None:
            raise RemoteProtocolError(Rule.VISIBLE_TEXT, fault)
        rollout = Rollout(
            node=author.node,
            account=author.account,
            epoch=slot.epoch,
            slot=slot.slot,
            family=slot.task.family,
            completions=generation.completions,
        )
        message = seal(Kind.ROLLOUT, parts.manifest.swarm_id, rollout.to_payload(), author.seed).to_bytes()
        parts.gossip.keep_certificate_valid()
        admitted = parts.engine.admit_own(message, parts.clock())
        await parts.gossip.publish(admitted, message)
        return await parts.engine.verify(admitted)

    def _report(self, epoch: int, batch: SampledBatch, report: StepReport, seconds: float) -> None:
        self._report_idle_restart()
        self._last_step = report.step
        self.reporter.report(epoch, batch, report, seconds)


def _judged(texts: Sequence[Demonstration], values: Sequence[TextValue | None]) -> Iterator[JudgedSteps]:
    """Yield the values of the steps of those texts that an account wrote and that have a value."""
    for text, value in zip(texts, values, strict=True):
        if text.source is not None and value is not None:
            yield text.account, text.family, StepValue(value[0], tuple(value[1]))
