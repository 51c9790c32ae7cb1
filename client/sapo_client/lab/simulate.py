"""One run: a swarm of agents in one process, in virtual time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio
import trio.testing
from trio._core import _run as scheduler

from sapo_client.lab.agent import Agent, LabWorld
from sapo_client.lab.attackers.attacker import LabAttacker
from sapo_client.lab.attackers.catalogue import attack_named
from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.held_out import HeldOut
from sapo_client.lab.islands.keys import authors_of, islands_of
from sapo_client.lab.journal import CurvePoint, Journal
from sapo_client.lab.learner import INTRODUCTION_SECONDS, ROUND_SECONDS, LocalLearner
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.swarm.simulated.memory import LinkConditions, MemoryHub
from sapo_protocol.manifest import Limits, Manifest
from sapo_verification.suites.catalogue import family, suite

LATENCY_SECONDS: Final = 0.05
"""Latency of every message; it is constant, so that messages arrive in the order in which they are sent."""

GENESIS_SECONDS: Final = 1_800_000_000
SLOTS: Final = 65_536

Progress = Callable[[int], None]
"""Takes the number of a round that all agents have finished."""


def simulate(run: Run, manifest: Manifest, folder: Path, progress: Progress) -> list[CurvePoint]:
    """Execute a run, and return the rows of all agents, by round.

    Args:
        folder: folder of checkpoints and journals; a killed run is resumed from it.

    Raises:
        SapoError: the model cannot be loaded, or the folder belongs to another run.
    """
    main = partial(_simulate, run, manifest, folder, progress)
    try:
        with _repeatable_scheduling(run.seed):
            return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    except BaseExceptionGroup as group:
        if (error := find_sapo_error(group)) is not None:
            raise error from group
        raise


@contextmanager
def _repeatable_scheduling(seed: int) -> Iterator[None]:
    """Derive the order in which trio runs ready tasks from a seed.

    Otherwise it is random, and so is the order of messages received at the same time. There is no public
    interface for this; Hypothesis uses the same two names.
    """
    before, state = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # Final for all others
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        scheduler._r.setstate(state)


async def _simulate(run: Run, manifest: Manifest, folder: Path, progress: Progress) -> list[CurvePoint]:
    bugs: list[Exception] = []
    rows: list[CurvePoint] = []
    conditions = LinkConditions(min_latency_seconds=LATENCY_SECONDS, max_latency_seconds=LATENCY_SECONDS)
    begin = manifest.genesis_seconds - trio.current_time()
    hub = MemoryHub(run.seed, conditions)
    world = LabWorld(
        run=run,
        manifest=manifest,
        hub=hub,
        checker=LocalChecker(manifest.suite.families),
        clock=lambda: begin + trio.current_time(),
        folder=_fresh(folder / "events"),
        rounds_done=lambda: len(rows) // run.plan.agents,
        say_bug=bugs.append,
        authors=authors_of(run, manifest),
    )
    agents = _agents(world, folder, partial(_collect, rows, run.plan.agents, progress))
    attackers = _attackers(world, agents)
    members: list[Agent | LabAttacker] = [*agents, *attackers]
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.transport.run)
        if not run.plan.visits:
            hub.partition(*_by_home(run.plan, agents))
        for member in members:
            nursery.start_soon(member.listen)
        await trio.sleep(INTRODUCTION_SECONDS)
        for attacker in attackers:
            nursery.start_soon(attacker.attack)
        async with trio.open_nursery() as trainings:
            for agent in agents:
                trainings.start_soon(agent.train, run.plan.rounds)
        nursery.cancel_scope.cancel()
    if bugs:
        raise bugs[0]
    return sorted(rows, key=lambda row: (row.round, row.agent))


def _agents(world: LabWorld, folder: Path, on_round: Callable[[CurvePoint], None]) -> list[Agent]:
    """Return the agents, then the teachers; each one connects to those before it."""
    held_out = HeldOut.of(world.manifest.suite.families, world.run.plan.held_out_per_family)
    agents: list[Agent] = []
    plan = world.run.plan
    for number in range(plan.agents + world.run.teachers):
        home = folder / f"agent-{number}"
        service = Service(settings_of(world.run, number, home))
        learner = LocalLearner(
            run=world.run,
            agent=number,
            service=service,
            journal=Journal(home / "journal.jsonl"),
            held_out=held_out,
            on_round=on_round,
            trains=number < plan.agents,
        )
        agents.append(Agent(world, number, learner, tuple(agent.address for agent in agents)))
    return agents


def _by_home(plan: ExperimentPlan, agents: Sequence[Agent]) -> list[list[str]]:
    """Return the peer ids of each island's agents and teachers."""
    sides: list[list[str]] = [[] for _ in range(plan.islands)]
    for number, agent in enumerate(agents):
        sides[plan.home_of(number)].append(agent.transport.peer_id)
    return sides


def _attackers(world: LabWorld, agents: Sequence[Agent]) -> list[LabAttacker]:
    """Return the attackers of the plan; each one connects to all agents and to the attackers before it."""
    plan = world.run.plan
    if plan.attack is None:
        return []
    addresses = [agent.address for agent in agents]
    attackers: list[LabAttacker] = []
    for number in range(plan.attackers):
        attackers.append(LabAttacker(world, number, attack_named(plan.attack), tuple(addresses)))
        addresses.append(attackers[-1].address)
    return attackers


def manifest_of(plan: ExperimentPlan) -> Manifest:
    """Return the manifest of an experiment, without a chain, with more slots than an agent uses.

    It starts a process to derive the suite.
    """
    return Manifest(
        name="lab",
        genesis_seconds=GENESIS_SECONDS,
        epoch_seconds=int(plan.rounds_per_epoch * ROUND_SECONDS),
        suite=suite(plan.level, plan.families),
        limits=Limits(slots_per_epoch=SLOTS, max_completions=plan.completions, points_per_epoch=SLOTS),
        islands=islands_of(plan),
        version=2 if plan.islands else 1,
    )


def settings_of(run: Run, number: int, home: Path) -> LearnerSettings:
    """Return the settings of an agent's learner."""
    plan = run.plan
    return LearnerSettings(
        model=plan.start_of(number),
        directory=home,
        seed=run.seed * 1_000_003 + number,
        learning_rate=plan.learning_rate,
        temperature=plan.temperature,
        max_new_tokens=plan.max_new_tokens,
        device=plan.device,
        bfloat16=plan.bfloat16,
        checkpoint_share=0.0,
        fresh=bool(plan.canary),
        own_steps_kept=plan.canary,
        demonstration_steps=plan.demonstration_steps,
        demonstrations_per_step=plan.texts_per_step,
        held_back=True,
        agreement=run.mixture.agreement,
        external_loss=run.mixture.external_loss,
        shows_steps=any(family(name, plan.level).answer != "plain" for name in plan.families),
    )


def _collect(rows: list[CurvePoint], agents: int, progress: Progress, row: CurvePoint) -> None:
    rows.append(row)
    if len(rows) % agents == 0:
        progress(len(rows) // agents)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
