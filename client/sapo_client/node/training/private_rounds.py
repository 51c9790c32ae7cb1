"""Private rounds: training without publication, while the node cannot sign in the present epoch.

This is the case while the chain is unreachable, the clock is not confirmed, or a later epoch was signed in.
The node then draws tasks from the last known beacon (after a start without the chain: from the swarm id), in
slots above the swarm's, which no rollout may use. It answers, scores and trains on them; nothing is signed,
published, audited or paid. Private rounds end as soon as the node can sign again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from sapo_client.learner.backend import LearnerCrashed
from sapo_client.learner.report import StepReport
from sapo_client.node.training.round_parts import RoundParts
from sapo_protocol.epochs import beacon
from sapo_protocol.tasks import Task, assigned_task
from sapo_verification.jail.checkers import CheckFailed
from sapo_verification.types import PrivateGroup, SampledBatch

_LOG = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
"""Wait for a beacon before private rounds begin; a working chain answers within a second or two."""

_SLOT_BITS: Final = 31


class PrivateRounds:
    """Rounds whose answers are not published.

    Args:
        trained: called with epoch, batch, report and duration in seconds of each.
        crashed: called with a crash of the learner, which was restarted.
    """

    def __init__(
        self,
        parts: RoundParts,
        *,
        trained: Callable[[int, SampledBatch, StepReport, float], None],
        crashed: Callable[[LearnerCrashed], None],
    ) -> None:
        self._parts = parts
        self._trained = trained
        self._crashed = crashed

    async def run(self, arrived: trio.Event, is_over: Callable[[], bool]) -> None:
        """Train until the beacon has arrived or ``is_over``, after a wait of ``PATIENCE_SECONDS``."""
        with trio.move_on_after(PATIENCE_SECONDS):
            await arrived.wait()
        if arrived.is_set():
            return
        if self._is_before_genesis():
            await arrived.wait()
            return
        events = self._parts.telemetry.events
        events.write("training_privately", epoch=self._epoch())
        while not (arrived.is_set() or is_over()):
            try:
                await self._round()
            except LearnerCrashed as error:
                self._crashed(error)
        events.write("training_shared")

    def _is_before_genesis(self) -> bool:
        """Whether a swarm without a chain has not begun yet, by a confirmed clock."""
        parts = self._parts
        early = parts.clock() < parts.manifest.genesis_seconds
        return early and not parts.manifest.has_chain and parts.clock_watch.is_believed

    def _epoch(self) -> int:
        newest = self._parts.beacons.newest
        return 0 if newest is None else newest[0]

    async def _round(self) -> None:
        parts, started = self._parts, trio.current_time()
        prompts = []
        for _ in range(parts.policy.local_groups):
            task = self._draw_task()
            try:
                prompts.append((task, await parts.checkers.prompt(task)))
            except CheckFailed as error:
                _LOG.info("a private task has no prompt: %s", error)
        generations = await parts.learner.generate(
            [prompt for _, prompt in prompts], completions_per_prompt=parts.completions
        )
        groups: list[PrivateGroup] = []
        for (task, prompt), generation in zip(prompts, generations, strict=True):
            if generation.refusal is not None:
                _LOG.info("a private task is left out: %s", generation.refusal.detail)
                continue
            try:
                group = await parts.engine.answer_privately(
                    task, prompt, generation.completions, generation.handle
                )
            except CheckFailed as error:
                _LOG.info("private answers cannot be scored: %s", error)
            else:
                groups.append(group)
        batch = parts.engine.sampler.assemble((), (), private=groups)
        report = await parts.learner.train(batch, {})
        self._trained(self._epoch(), batch, report, trio.current_time() - started)

    def _draw_task(self) -> Task:
        parts, manifest = self._parts, self._parts.manifest
        newest = parts.beacons.newest
        known = beacon(manifest.swarm_id, 0, b"") if newest is None else newest[1]
        family = parts.rng.choice(manifest.families_at(self._epoch()))
        slot = (1 << _SLOT_BITS) + parts.rng.getrandbits(_SLOT_BITS)  # far above those that are assigned
        return assigned_task(manifest.swarm_id, known, account=parts.author.account, family=family, slot=slot)
