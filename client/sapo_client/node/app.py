"""The composition root: creates the parts of a node, starts their services, stops them in order.

Starting order: engine, checkers and learner (slow, at once), transport, ledger.
Stopping order: the round ends, the policy is saved, everything else is cancelled.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from sapo_client.config import LAST_CHECKPOINT_SECONDS, Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.learner.backend import Backend, LearnerCrashed
from sapo_client.node.auditing import assembly as auditing
from sapo_client.node.engine import open_engine, storage_facts
from sapo_client.node.gossip.assembly import open_gossip
from sapo_client.node.health import HealthWatch, IslandWatch
from sapo_client.node.metrics_poller import open_metrics_poller
from sapo_client.node.reports import Reports
from sapo_client.node.roles import NO_ROLES, Roles
from sapo_client.node.runtime.backends import open_backend
from sapo_client.node.runtime.beacons import open_beacons
from sapo_client.node.runtime.clock import Clock, ClockWatch, steady_clock, wall_clock
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.host import say_joined, start_transport
from sapo_client.node.runtime.shutdown import Pause, Shutdown
from sapo_client.node.runtime.supervisor import Service, Supervisor
from sapo_client.node.runtime.telemetry import open_telemetry
from sapo_client.node.runtime.upkeep import keep_log_short, start_up_set_aside
from sapo_client.node.training import assembly as training
from sapo_client.observe import control
from sapo_client.observe.status import RoundSummary
from sapo_client.paths import DataDir
from sapo_client.swarm.transport import BugReport, Transport
from sapo_protocol.manifest import Manifest
from sapo_verification.jail.checkers import CheckerPool

if TYPE_CHECKING:
    from trio_typing import TaskStatus

    from sapo_client.config_layers import Setting
    from sapo_client.dashboard.claim import Claim


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one start, in addition to the configuration.

    Attributes:
        fresh: begin with the configured model although checkpoints exist.
        steps: stop after this many steps; without a number, run until stopped.
        settings: every setting with its origin, to be shown.
        claim: claims points, for the page's button.
    """

    fresh: bool = False
    steps: int | None = None
    settings: tuple[Setting, ...] = ()
    claim: Claim | None = None


class NodeApp:
    """One node: all parts, opened and connected.

    Args:
        open_transport: returns the transport, from a function that reports errors of its callbacks.
        show: called with the summary of each round.
        steady: monotonic clock in seconds.
        locks: folder of the identities' locks, if the process holds that of its identity.
    """

    _last_step: int | None = None
    _has_joined = False

    def __init__(
        self,
        *,
        config: Config,
        identity: Identity,
        options: RunOptions,
        manifest: Manifest,
        data: DataDir,
        open_transport: Callable[[BugReport], Transport],
        show: Callable[[RoundSummary], None],
        clock: Clock = wall_clock,
        steady: Clock = steady_clock,
        roles: Roles = NO_ROLES,
        locks: Path | None = None,
    ) -> None:
        self._options, self._roles, self._shutdown, self._pause = options, roles, Shutdown(), Pause()
        telemetry = open_telemetry(config, data, manifest, identity)
        self._supervisor = Supervisor(telemetry.events)
        watch = ClockWatch(clock, steady, asks_chain=manifest.has_chain)
        self._context = context = NodeContext(
            config=config,
            identity=identity,
            manifest=manifest,
            data=data,
            transport=open_transport(self._supervisor.note_bug),
            telemetry=telemetry,
            clock=watch.now,
            clock_watch=watch,
            rng=random.Random(f"{config.learner.seed}:{identity.node_id}"),
            fresh=options.fresh,
        )
        self._chain = auditing.open_chain(context)
        self._beacons = open_beacons(manifest, self._chain, context.events)
        self._checkers = CheckerPool(manifest.suite, workers=config.verification.workers)
        self._learner, self._show, self._started_seconds = self._open_learner(), show, watch.now()
        told = roles.join(telemetry, doppelganger := training.open_doppelganger(context, locks))
        self._engine = open_engine(context, checkers=self._checkers, beacons=self._beacons, observers=told)
        self._beacons.records.archive = self._engine.contributions.record
        self._gossip = open_gossip(context, self._engine, self._beacons, self._chain.final_roots_before)
        self._watch_chain()
        self._audit = auditing.open_audit(context, self._engine, self._beacons)
        self._ledger = auditing.open_ledger(
            context,
            engine=self._engine,
            gossip=self._gossip,
            beacons=self._beacons,
            chain=self._chain,
            locks=locks,
            open_auditor=roles.open_auditor,
        )
        self._rounds = training.open_rounds(
            context,
            engine=self._engine,
            gossip=self._gossip,
            doppelganger=doppelganger,
            beacons=self._beacons,
            checkers=self._checkers,
            learner=self._learner,
            show=self._round_ended,
        )

    def _open_learner(self) -> Backend:
        context = self._context
        return open_backend(
            context.config.learner,
            context.data.learner,
            suite=context.manifest.suite,
            seed=context.rng.getrandbits(32),
            fresh=context.fresh,
            own_steps_kept=context.config.canary.every_rounds,
            reinforces=context.config.sampler.reinforces,
        )

    def _watch_chain(self) -> None:
        """Create the services that follow the chain (bonds, announcements) and the health watch."""
        self._bonds = auditing.open_bonds(self._context, self._engine, self._chain)
        self._successions = auditing.open_successions(
            self._context, self._engine, self._chain, self._gossip, reopen=self._reopen
        )
        self._beacons.holds_terms = self._successions.holds
        self._funds = auditing.open_funds(self._context, self._engine, self._chain)
        self._health = HealthWatch(
            self._context,
            chain=self._chain,
            learner=self._learner,
            bond=self._bonds.facts,
            funds=self._funds,
            change=self._successions.unfollowed,
            islands=IslandWatch(self._context.manifest, self._engine.islands, self._context.clock).facts,
            storage=partial(storage_facts, self._context, self._engine),
        )

    def _reopen(self) -> None:
        """End this node after its round, so that it is opened again with the newest terms of its data
        directory."""
        self._shutdown.reopen("the swarm's terms change")

    @property
    def goes_on(self) -> RunOptions | None:
        """After ``run``: the options with which the node is to be opened again at once, or None if it has
        ended."""
        return self.left if self._shutdown.reopens else None

    @property
    def left(self) -> RunOptions | None:
        """The options with which to open the node again after a failure; None if nothing is left to do."""
        steps = self._options.steps
        if self._last_step is not None:
            steps = self._last_step - self._learner.step
        is_asked_to_stop = self._shutdown.draining.is_set() and not self._shutdown.reopens
        if is_asked_to_stop or (steps is not None and steps <= 0):
            return None
        return replace(self._options, fresh=self._options.fresh and not self._has_joined, steps=steps)

    @property
    def exit_code(self) -> int:
        """The exit code of a node that has nothing left to do."""
        return self._shutdown.exit_code

    @property
    def addresses(self) -> tuple[str, ...]:
        """The multiaddrs at which others reach this node, with its peer id."""
        return self._context.transport.addresses

    @property
    def step(self) -> int:
        """The policy's last step."""
        return self._learner.step

    def request_stop(self, *, finish: bool = True) -> None:
        """Stop after the current round, or at once unless ``finish``; only inside the node's event loop."""
        self._shutdown.request("the program that runs it", ExitCode.DONE, finish=finish)

    async def run(self) -> int:
        """Run until the steps are done or the node is stopped; return its exit code."""
        context = self._context
        self._roles.opened()
        was_clean = context.data.clean_shutdown.exists()
        context.data.clean_shutdown.unlink(missing_ok=True)
        async with self._services() as has_started:
            if has_started:
                await self._rounds_until_stop()
                await self._save()
        if has_started or was_clean:  # before the start nothing is signed
            context.data.clean_shutdown.touch()
        if not has_started:
            context.events.close()
            return self._shutdown.exit_code
        context.telemetry.refusal_events.sum_up()
        context.events.write("stopped", step=self._learner.step, why=self._shutdown.why)
        context.events.close()
        return self._shutdown.exit_code

    @asynccontextmanager
    async def _services(self) -> AsyncIterator[bool]:
        """Run all services other than the rounds; yield whether the node has started, which a stop ends."""
        context = self._context
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shutdown.watch_signals)
            if not await self._start_slow_parts(nursery):
                yield False
                nursery.cancel_scope.cancel()
                return
            context.draw_on_from(self._learner.step)
            self._engine.restore(context.clock())
            self._successions.begin()
            await nursery.start(self._serve_control)
            self._announce()
            self._has_joined = True
            self._roles.started(self)
            nursery.start_soon(self._keep("gossip", self._gossip.run))
            nursery.start_soon(self._keep("bonds", self._bonds.run))
            nursery.start_soon(self._keep("funds", self._funds.run))
            nursery.start_soon(self._keep("successions", self._successions.run))
            nursery.start_soon(self._keep("audit", self._audit.run))
            nursery.start_soon(self._keep("upkeep", partial(keep_log_short, context.data.database)))
            watch = open_metrics_poller(context, self._engine, self._gossip, self._chain)
            nursery.start_soon(self._keep("watch", watch.run))
            nursery.start_soon(self._keep("tracker", context.telemetry.track))
            nursery.start_soon(self._keep("health", partial(self._health.run, self._reports().keep)))
            nursery.start_soon(self._keep("history", context.telemetry.recorder.run))
            nursery.start_soon(self._ledger.run, self._supervisor)
            with start_up_set_aside():
                yield True
            nursery.cancel_scope.cancel()

    async def _start_slow_parts(self, nursery: trio.Nursery) -> bool:
        """Start the parts that take seconds to import, at the same time; whether no stop has ended that."""
        async with trio.open_nursery() as telling:
            telling.start_soon(self._health.keep_loading)
            telling.start_soon(self._shutdown.heed_requests, self._roles.is_stop_requested)
            telling.start_soon(self._cancel_after, self._shutdown.draining, telling.cancel_scope)
            async with trio.open_nursery() as starting:
                starting.start_soon(nursery.start, self._checkers.run)
                starting.start_soon(nursery.start, self._learner.run)
                starting.start_soon(start_transport, nursery, self._context.transport)
                starting.start_soon(self._health.look_before_start)
            self._shutdown.has_started = True
            telling.cancel_scope.cancel()
        return self._shutdown.has_started

    def _keep(self, name: str, service: Service) -> Service:
        return partial(self._supervisor.keep, name, service)

    async def _rounds_until_stop(self) -> None:
        """Train until the steps are done or the node is to stop; a stop at once interrupts the round."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_after, self._shutdown.hurried, nursery.cancel_scope)
            await self._train()
            nursery.cancel_scope.cancel()

    async def _cancel_after(self, event: trio.Event, scope: trio.CancelScope) -> None:
        await event.wait()
        scope.cancel()

    async def _train(self) -> None:
        steps = self._options.steps
        self._last_step = None if steps is None else self._learner.step + steps
        run = partial(self._rounds.run, self._last_step, self._shutdown.draining, self._pause)
        await self._supervisor.keep("rounds", run)

    async def _save(self) -> None:
        """Write the last checkpoint, or report why that failed; the one before it is intact."""
        deadline = trio.current_time() + LAST_CHECKPOINT_SECONDS
        with trio.CancelScope(deadline=deadline, shield=True) as waiting:
            try:
                await self._learner.checkpoint()
                self._tell_saved()
            except (LearnerCrashed, SapoError) as error:
                self._tell_unsaved(str(error))
        if waiting.cancelled_caught:
            self._tell_unsaved(f"it was given up after {LAST_CHECKPOINT_SECONDS:.0f} s")
        self._reports().keep(stopped=True)

    def _tell_saved(self) -> None:
        if not self._shutdown.reopens:
            saved = f"stopped at step {self._learner.step}, and its checkpoint is written"
            print(f"{saved}: the next start goes on from there", file=sys.stderr)

    def _tell_unsaved(self, why: str) -> None:
        told = f"the last checkpoint was not written: {why}; the next start goes on from the one before it"
        self._context.events.write("checkpoint_failed", why=told)
        print(f"warning: {told}", file=sys.stderr)

    def _round_ended(self, summary: RoundSummary) -> None:
        self._health.round_ended(summary)
        self._show(summary)

    async def _serve_control(self, task_status: TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        observe = self._context.config.observe
        handlers = control.Handlers(
            reports=self._reports().by_name(),
            is_draining=self._shutdown.draining.is_set,
            stop=lambda finish: self._shutdown.request("sapo stop", ExitCode.DONE, finish=finish),
            metrics=self._context.telemetry.metrics.render if observe.metrics else None,
            findings=lambda: self._health.findings,
            pages=self._reports().pages(),
            pause=self._set_paused,
        )
        await control.serve(self._context.data, handlers, port=observe.control_port, task_status=task_status)

    def _set_paused(self, paused: bool) -> None:
        self._pause.set(paused)
        self._context.events.write("paused" if paused else "resumed", step=self._learner.step)

    def _announce(self) -> None:
        context, transport = self._context, self._context.transport
        context.events.write(
            "node_started",
            node=context.author.node,
            account=context.author.account,
            peer_id=transport.peer_id,
            addresses=list(transport.addresses),
            swarm=context.manifest.swarm_id,
            step=self._learner.step,
            audit=context.config.ledger.audit,
            pid=os.getpid(),
        )
        name = context.author.node.hex()[:12]
        if context.config.swarm.alone:
            print(
                f"training alone as {name}: nothing is shared, data in {context.data.root}", file=sys.stderr
            )
            return
        say_joined(context.manifest.name, name, transport.addresses)

    def _reports(self) -> Reports:
        return Reports(
            context=self._context,
            engine=self._engine,
            rounds=self._rounds,
            learner=self._learner,
            chain=self._chain,
            ledger=self._ledger,
            shutdown=self._shutdown,
            pause=self._pause,
            started_seconds=self._started_seconds,
            health=self._health,
            settings=self._options.settings,
            claim=self._options.claim,
            coming=self._successions.coming,
        )
