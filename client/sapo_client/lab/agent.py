"""One agent: a node's own parts on an in-memory transport, with a learner in this process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import trio

from sapo_client.config import LearnerConfig
from sapo_client.lab.arms import TEACHER_COMPLETIONS, TEACHING
from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.exposure import Exposure, PairedStream
from sapo_client.lab.learner import LocalLearner
from sapo_client.lab.oracle import Oracle
from sapo_client.lab.plan import AgentKeys, Run
from sapo_client.node.auditing.audit import Audit
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock, ClockWatch
from sapo_client.node.runtime.context import Author
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.training.canary import Canary, CanaryParts, CanaryRole, CanarySettings, NoCanary
from sapo_client.node.training.canary_state import CanaryFile
from sapo_client.node.training.doppelganger import Doppelganger, DoppelgangerParts
from sapo_client.node.training.judge_client import NoJudge
from sapo_client.node.training.promotion import Promotion
from sapo_client.node.training.rationalise import Rationaliser
from sapo_client.node.training.rehearsal import Rehearsal
from sapo_client.node.training.round_parts import DemonstrationSource, RoundParts
from sapo_client.node.training.rounds import Rounds
from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.status import RoundSummary
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_verification.engine import Engine
from sapo_verification.observer import Observer
from sapo_verification.sampling.engine_terms import Terms
from sapo_verification.signing.database import WHOLE, SigningDatabase
from sapo_verification.types import VerifiedRollout

MEMORY: Final = ":memory:"
ALL_TIME: Final = 1.0
"""Share of time for audits: there are few agents and scoring is cheap, so with all of the time every account
is known after a few rounds instead of a hundred."""


@dataclass(frozen=True)
class LabWorld:
    """State shared by the agents of one run.

    Attributes:
        folder: folder of temporary files, which are removed after the run.
        rounds_done: returns the number of rounds that all agents have finished.
        authors: keys of all agents, then of the teachers.
        say_bug: called with an error that the transport caught.
    """

    run: Run
    manifest: Manifest
    hub: MemoryHub
    checker: LocalChecker
    clock: Clock
    folder: Path
    rounds_done: Callable[[], int]
    say_bug: Callable[[Exception], None]
    authors: tuple[AgentKeys, ...]


def open_transport(world: LabWorld, peer_id: str, neighbours: tuple[str, ...]) -> MemoryTransport:
    """Return the transport of one account, with connection limits derived from all quotas.

    A real node updates these limits from time to time. In an experiment a round takes two seconds and all
    accounts are connected with each other, so with the initial limits four hundred groups a round would count
    as a flood and end the connections.
    """
    transport = MemoryTransport(world.hub, peer_id, on_bug=world.say_bug, bootstrap=neighbours)
    accounts = len(world.authors) + world.run.plan.attackers
    transport.expect(accounts * world.manifest.limits.slots_per_epoch / world.manifest.epoch_seconds)
    return transport


def open_telemetry(world: LabWorld, identity: AgentKeys) -> Telemetry:
    """Return the telemetry of one account."""
    manifest = world.manifest
    events = EventLog(world.folder / f"events-{identity.node.hex()[:8]}.jsonl", clock=world.clock)
    metrics = NodeMetrics(
        version=version("sapo-swarm"), swarm_id=str(manifest.swarm_id), node_id=str(identity.node)
    )
    return Telemetry(events, metrics, manifest.suite, identity.account)


def certificate_of(world: LabWorld, identity: AgentKeys) -> OwnCertificate:
    """Return the certificate of one account's node."""
    return OwnCertificate(
        node_seed=identity.node_seed,
        account_key=identity.account_key,
        manifest=world.manifest,
        clock=world.clock,
    )


class Agent:
    """One node of an experiment: the node's own parts, a learner in this process, only temporary files."""

    def __init__(
        self, world: LabWorld, number: int, learner: LocalLearner, neighbours: tuple[str, ...]
    ) -> None:
        self._world = world
        self._identity = identity = world.authors[number]
        manifest = world.manifest
        peer_id = peer_id_from_key(identity.node)
        self.address = f"/memory/{peer_id}/p2p/{peer_id}"
        self.transport = open_transport(world, peer_id, neighbours)
        self._telemetry = open_telemetry(world, identity)
        beacons = Beacons(manifest, NoChain().block_hash_before, self._telemetry.events)
        signing = SigningDatabase(MEMORY)
        doppelganger = self._open_doppelganger(signing)
        plan, trains = world.run.plan, number < world.run.plan.agents
        self._arm = arm = world.run.mixture if trains else TEACHING
        policy = replace(arm.policy, demonstrations=plan.demonstrations)
        engine = Engine(
            manifest,
            MEMORY,
            own=identity.account,
            check=world.checker.check,
            beacon_of=beacons.known,
            key=identity.node_seed,
            terms=Terms(sampling=policy),
            observers=[self._telemetry, doppelganger, OwnRollouts(identity.account, learner)],
        )
        learner.exposure = Exposure(engine, [keys.account for keys in world.authors])
        engine.observe(learner.exposure)
        self.gossip = self._open_gossip(engine, beacons)
        self._audit = Audit(engine=engine, beacons=beacons, time_share=ALL_TIME)
        parts = RoundParts(
            author=Author(identity.node_seed, identity.node, identity.account),
            engine=engine,
            policy=policy,
            completions=plan.completions if trains else TEACHER_COMPLETIONS,
            signing=signing,
            share=WHOLE,
            doppelganger=doppelganger,
            beacons=beacons,
            checkers=world.checker,
            learner=learner,
            gossip=self.gossip,
            telemetry=self._telemetry,
            clock=world.clock,
            clock_watch=ClockWatch(world.clock, world.clock),
            rng=PairedStream(f"{identity.name}/rounds", lambda: engine.epoch(world.clock())),
            canary=self._canary(engine, learner) if trains and plan.canary else NoCanary(),
            judge=NoJudge(),
            demonstrations=self._demonstrations(engine),
            rationaliser=Rationaliser(learner, world.checker, self._telemetry.events),
            rehearsal=self._rehearsal(engine, learner),
            promotion=self._promotion(learner),
            redraws=arm.redraws,
        )
        self._rounds = Rounds(parts, _show_nothing)

    async def listen(self) -> None:
        """Validate, audit and answer until cancelled."""
        with self._telemetry.events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.gossip.run)
                nursery.start_soon(self._audit.run)

    async def train(self, rounds: int) -> None:
        """Train for a number of rounds."""
        await self._rounds.run(rounds, trio.Event())

    def _open_gossip(self, engine: Engine, beacons: Beacons) -> GossipHandlers:
        return GossipHandlers(
            engine=engine,
            transport=self.transport,
            own_certificate=certificate_of(self._world, self._identity),
            telemetry=self._telemetry,
            clock=self._world.clock,
            beacons=beacons,
        )

    def _demonstrations(self, engine: Engine) -> DemonstrationSource:
        plan = self._world.run.plan
        if not self._arm.oracle:
            return engine
        policy, success = self._arm.policy, engine.success
        return Oracle(
            self._world.manifest.suite.families,
            plan.demonstrations,
            lambda family: policy.need(success.of(family)),
        )

    def _canary(self, engine: Engine, learner: LocalLearner) -> CanaryRole:
        world, identity, plan = self._world, self._identity, self._world.run.plan
        families = world.manifest.suite.families
        parts = CanaryParts(
            learner=learner,
            checkers=world.checker,
            sampler=engine.sampler,
            pool=engine.pool,
            demonstrations=engine.demonstrations,
            events=self._telemetry.events,
            file=CanaryFile(world.folder / f"canary-{identity.node.hex()[:8]}.json", families, fresh=True),
            secret=identity.node_seed,
            families=len(families),
        )
        return Canary(CanarySettings(every_rounds=plan.canary), parts)

    def _rehearsal(self, engine: Engine, learner: LocalLearner) -> Rehearsal:
        return Rehearsal(
            learner,
            self._world.checker,
            self._telemetry.events,
            families=len(self._world.manifest.suite.families),
            success=engine.success.of,
            rng=random.Random(f"{self._identity.name}/rehearsal"),
        )

    def _promotion(self, learner: LocalLearner) -> Promotion:
        return Promotion(
            learner,
            self._world.checker,
            self._telemetry.events,
            families=len(self._world.manifest.suite.families),
            tasks=LearnerConfig().comparison_tasks,
            rng=random.Random(f"{self._identity.name}/promotion"),
        )

    def _open_doppelganger(self, signing: SigningDatabase) -> Doppelganger:
        """Return a check that does not listen: no other node has these keys."""
        world, identity = self._world, self._identity
        return Doppelganger(
            DoppelgangerParts(
                manifest=world.manifest,
                node=identity.node,
                account=identity.account,
                signing=signing,
                share=WHOLE,
                transport=self.transport,
                telemetry=self._telemetry,
                clock=world.clock,
                seconds=0,
                stopped_clean=True,
                data_dir=Path(MEMORY),
            )
        )


class OwnRollouts(Observer):
    """Passes an agent's own verified rollouts to its learner, which waits for their rewards."""

    def __init__(self, account: Account, learner: LocalLearner) -> None:
        self._account = account
        self._learner = learner

    def verified(self, rollout: VerifiedRollout) -> None:
        """Show an own rollout to the learner."""
        if rollout.account == self._account:
            self._learner.see(rollout)


def _show_nothing(_summary: RoundSummary) -> None:
    """Drop the status lines of a whole swarm's nodes."""
