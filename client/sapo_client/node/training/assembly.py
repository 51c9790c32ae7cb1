"""Assembly of the training part of a node: rounds, canary, doppelganger protection, judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sapo_client import plugins
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Backend
from sapo_client.learner.process import Learner
from sapo_client.machine_marks import MachineMarks
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.training.canary import Canary, CanaryParts, CanarySettings
from sapo_client.node.training.canary_state import CanaryFile
from sapo_client.node.training.doppelganger import Doppelganger, DoppelgangerParts
from sapo_client.node.training.family_evidence import Assigned
from sapo_client.node.training.judge_client import JudgeClient
from sapo_client.node.training.level_file import LevelFile
from sapo_client.node.training.promotion import NoPromotion, Promotion, PromotionRole
from sapo_client.node.training.rationalise import Rationaliser
from sapo_client.node.training.rehearsal import Rehearsal
from sapo_client.node.training.round_parts import RoundParts
from sapo_client.node.training.rounds import Rounds
from sapo_client.observe.status import RoundSummary
from sapo_protocol.epochs import present_epoch
from sapo_protocol.manifest import Manifest
from sapo_verification.engine import Engine
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.sampling.own_success import FamilyRecord, TaskSampler
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.sampling.strategies import STRATEGIES, SamplingStrategy
from sapo_verification.sampling.text_use import TextUse
from sapo_verification.signing.database import SigningDatabase, SlotShare

if TYPE_CHECKING:
    from sapo_client.config import Config


def sampling_policy(config: Config) -> SamplingPolicy:
    """Return the configured sampling policy; a node that does not train uses no rollouts of others."""
    trains = config.learner.trains
    return SamplingPolicy(
        local_groups=config.learner.local_groups,
        external_groups=config.learner.external_groups if trains else 0,
        account_cap=config.verification.account_cap,
        newcomer_cap=config.verification.newcomer_cap,
        network_cap=config.verification.network_cap,
        strategy=_strategy(config.sampler.strategy),
        text_use=TextUse(config.sampler.text_use) if trains else TextUse.REINFORCE,
        demonstrations=config.sampler.demonstrations,
        need_below=config.learner.need_below,
        learnable_tasks=config.sampler.learnable_tasks,
        task_sampler=_task_sampler(config.sampler.task_sampler),
    )


def _strategy(name: str) -> str | SamplingStrategy:
    """Return a built-in strategy's name, or the strategy of a plug-in."""
    if name in STRATEGIES:
        return name
    loaded: SamplingStrategy = plugins.load(plugins.STRATEGIES, name, SamplingStrategy)
    return loaded


def _task_sampler(name: str | None) -> TaskSampler | None:
    """Return the task sampler of a plug-in, if one is set.

    A return value that is not a family's index stops the node.
    """
    if name is None:
        return None
    sampler: TaskSampler = plugins.load(plugins.TASK_SAMPLERS, name)

    def checked(families: Sequence[FamilyRecord], rng: random.Random) -> int:
        family = sampler(families, rng)
        if not (isinstance(family, int) and 0 <= family < len(families)):
            raise SapoError(
                f"the task sampler {name!r} returned {family!r}; the suite has {len(families)} families,"
                " counted from 0",
                hint="correct the plug-in, or unset sampler.task_sampler",
                exit_code=ExitCode.CONFIG,
            )
        return family

    return checked


def open_doppelganger(context: NodeContext, locks: Path | None) -> Doppelganger:
    """Return the observer that prevents signing while another process uses the same identity.

    Args:
        locks: folder in which is kept what the account signed on this machine in any data directory; None if
            that is not kept. A node that trains alone publishes nothing, so it keeps nothing.
    """
    author, alone = context.author, context.config.swarm.alone
    machine = None if locks is None or alone else _machine_marks(context, locks)
    return Doppelganger(
        DoppelgangerParts(
            manifest=context.manifest,
            node=author.node,
            account=author.account,
            signing=SigningDatabase(context.data.database),
            share=SlotShare.parse(context.config.swarm.slot_share),
            transport=context.transport,
            telemetry=context.telemetry,
            clock=context.clock,
            seconds=context.config.swarm.listen_before_signing_seconds,
            stopped_clean=context.data.clean_shutdown.exists(),
            data_dir=context.data.root,
            machine=machine,
        )
    )


def _machine_marks(context: NodeContext, locks: Path) -> MachineMarks:
    author = context.author
    return MachineMarks(locks, account=author.account, node=author.node, data_dir=context.data.root)


def open_rounds(
    context: NodeContext,
    *,
    engine: Engine,
    gossip: GossipHandlers,
    doppelganger: Doppelganger,
    beacons: Beacons,
    checkers: CheckerPool,
    learner: Backend,
    show: Callable[[RoundSummary], None],
) -> Rounds:
    """Return the training rounds, not running yet."""
    config, manifest = context.config, context.manifest
    now = present_epoch(manifest, context.clock())
    parts = RoundParts(
        author=context.author,
        engine=engine,
        policy=sampling_policy(config),
        completions=min(config.learner.completions, manifest.completions_from(now)),
        signing=SigningDatabase(context.data.database),
        share=SlotShare.parse(config.swarm.slot_share),
        doppelganger=doppelganger,
        beacons=beacons,
        checkers=checkers,
        learner=learner,
        ahead=learner if config.learner.overlap and isinstance(learner, Learner) else None,
        gossip=gossip,
        telemetry=context.telemetry,
        clock=context.clock,
        clock_watch=context.clock_watch,
        rng=context.rng,
        canary=_canary(context, engine, checkers, learner),
        judge=_judge(context, checkers, learner),
        demonstrations=engine,
        promotion=_promotion(context, checkers, learner),
        rationaliser=Rationaliser(learner, checkers, context.events),
        rehearsal=Rehearsal(
            learner,
            checkers,
            context.events,
            families=len(context.manifest.suite.families),
            success=engine.success.of,
            rng=context.rng,
            assigned=assigned_families(context.manifest, context.clock),
        ),
    )
    return Rounds(parts, show)


def _canary(context: NodeContext, engine: Engine, checkers: CheckerPool, learner: Backend) -> Canary:
    config, families = context.config, context.manifest.suite.families
    parts = CanaryParts(
        learner=learner,
        checkers=checkers,
        sampler=engine.sampler,
        pool=engine.pool,
        demonstrations=engine.demonstrations,
        events=context.events,
        file=CanaryFile(context.data.learner / "canary.json", families, fresh=context.fresh),
        secret=context.author.seed,
        families=len(families),
        assigned=assigned_families(context.manifest, context.clock),
    )
    every_rounds = config.canary.every_rounds if config.learner.trains else 0
    return Canary(CanarySettings(every_rounds, config.canary.items), parts)


def _promotion(context: NodeContext, checkers: CheckerPool, learner: Backend) -> PromotionRole:
    tasks = context.config.learner.comparison_tasks
    if not tasks or not isinstance(learner, Learner):
        return NoPromotion()
    return Promotion(
        learner,
        checkers,
        context.events,
        families=len(context.manifest.suite.families),
        tasks=tasks,
        rng=context.rng,
        file=LevelFile(
            context.data.learner / "levels.json", context.manifest.suite.families, fresh=context.fresh
        ),
        assigned=assigned_families(context.manifest, context.clock),
    )


def assigned_families(manifest: Manifest, clock: Clock) -> Assigned:
    """Return what tells the families that slots may have in the present epoch."""
    return lambda: manifest.families_at(present_epoch(manifest, clock()))


def _judge(context: NodeContext, checkers: CheckerPool, learner: Backend) -> JudgeClient:
    config = context.config
    return JudgeClient(
        manifest=context.manifest,
        account=context.author.account,
        learner=learner,
        checkers=checkers,
        events=context.events,
        every=config.judge.every,
        temperature=config.learner.temperature,
    )
