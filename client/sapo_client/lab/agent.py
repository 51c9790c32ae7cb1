"""One agent: a node's own parts on an in-memory transport, with a learner in this process."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Final

import trio

from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.learner import LocalLearner
from sapo_client.lab.plan import Run
from sapo_client.node.auditing.audit import Audit, AuditShares
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.proofs import Proofs
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.training.doppelganger import Doppelganger, DoppelgangerParts
from sapo_client.node.training.rounds import Author, RoundParts, Rounds
from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.observe.status import RoundSummary
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.equivocations import ProofBook
from sapo_verification.admission.rollouts import Admission
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.reputation.origins import Origins
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.sampling.sampler import Sampler
from sapo_verification.screens.screens import Screens
from sapo_verification.signing.database import WHOLE, SigningDatabase
from sapo_verification.types import VerifiedRollout
from sapo_verification.verifier import Verifier

MEMORY: Final = ":memory:"
AUDIT_SHARES: Final = AuditShares(rollouts=1.0, time=1.0)
"""Agents are few and scoring is cheap: everybody is known after a few rounds, not after a hundred."""


@dataclass(frozen=True)
class LabWorld:
    """What the agents of one run share.

    Attributes:
        folder: of files that only live as long as the run.
        say_bug: takes a failure that the transport contained.
    """

    run: Run
    manifest: Manifest
    hub: MemoryHub
    checker: LocalChecker
    clock: Clock
    folder: Path
    say_bug: Callable[[Exception], None]


class Agent:
    """A node's parts, wired as `sapo_client.node.app` wires them."""

    def __init__(
        self, world: LabWorld, number: int, learner: LocalLearner, neighbours: tuple[str, ...]
    ) -> None:
        self._world = world
        self._learner = learner
        self._person = world.run.author(number)
        peer_id = peer_id_from_key(self._person.node)
        self.address = f"/memory/{peer_id}/p2p/{peer_id}"
        self.transport = MemoryTransport(world.hub, peer_id, on_bug=world.say_bug, bootstrap=neighbours)
        self._reputation = Reputation()
        self._certificates = CertificateBook(world.manifest)
        self._admission = Admission(world.manifest, self._certificates)
        self._pool = Pool(MEMORY, PoolLimits(), self._reputation)
        self._screens = Screens(world.manifest.suite.families, self._person.node_seed, self._person.account)
        self._heard = EnvelopeStore(MEMORY)
        self._origins = Origins()
        self._signing = SigningDatabase(MEMORY)

    async def listen(self) -> None:
        """Hears, audits and answers until cancelled."""
        with self._telemetry.events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.gossip.run)
                nursery.start_soon(self._audit.run)

    async def train(self, rounds: int) -> None:
        """So many rounds."""
        await self._rounds.run(rounds, trio.Event())

    @cached_property
    def _telemetry(self) -> Telemetry:
        manifest, person = self._world.manifest, self._person
        events = EventLog(
            self._world.folder / f"events-{person.node.hex()[:8]}.jsonl", clock=self._world.clock
        )
        metrics = NodeMetrics(
            version=version("sapo-swarm"), swarm_id=str(manifest.swarm_id), node_id=str(person.node)
        )
        telemetry = Telemetry(events, metrics, manifest.suite, person.account)
        telemetry.on_verified.append(self._note)
        return telemetry

    @cached_property
    def _verifier(self) -> Verifier:
        return Verifier(
            self._world.manifest.swarm_id, self._world.checker.check, self._beacons.known, self._reputation,
            self._telemetry, self._screens,
        )  # fmt: skip

    @cached_property
    def _beacons(self) -> Beacons:
        return Beacons(self._world.manifest, None, self._telemetry.events)

    @cached_property
    def gossip(self) -> GossipHandlers:
        """Its ears."""
        world, account = self._world, self._person.account
        book = ProofBook(world.manifest, self._certificates, self._reputation, account)
        proofs = Proofs(
            world.manifest, self.transport, book, self._heard, self._telemetry, account, world.clock
        )
        certificate = OwnCertificate(
            self._person.node_seed, self._person.account_key, world.manifest, world.clock
        )
        return GossipHandlers(
            world.manifest, self.transport, self._certificates, self._admission, self._pool, self._heard,
            self._telemetry, account, certificate, world.clock, self._origins, proofs, self._screens,
        )  # fmt: skip

    @cached_property
    def _audit(self) -> Audit:
        return Audit(
            self.gossip.audit_queue, self._verifier, self._pool, self._reputation, self._beacons,
            AUDIT_SHARES, self._telemetry.events, self._stream("audit"),
        )  # fmt: skip

    @cached_property
    def _rounds(self) -> Rounds:
        return Rounds(self._round_parts(), _say_nothing)

    def _round_parts(self) -> RoundParts:
        world, person, arm = self._world, self._person, self._world.run.arm
        return RoundParts(
            manifest=world.manifest,
            author=Author(person.node_seed, person.node, person.account),
            policy=arm.policy,
            completions=world.run.plan.completions,
            signing=self._signing,
            share=WHOLE,
            doppelganger=self._doppelganger(),
            beacons=self._beacons,
            checkers=world.checker,
            learner=self._learner,
            admission=self._admission,
            verifier=self._verifier,
            pool=self._pool,
            heard=self._heard,
            sampler=Sampler(
                self._pool, self._reputation, self._verifier, arm.policy, self._origins.network_of
            ),
            gossip=self.gossip,
            telemetry=self._telemetry,
            clock=world.clock,
            rng=self._stream("rounds"),
            redraws=arm.redraws,
        )

    def _doppelganger(self) -> Doppelganger:
        """Nobody else can have these keys, so it does not listen before it signs."""
        world, person = self._world, self._person
        parts = DoppelgangerParts(
            world.manifest, person.node, person.account, self._signing, WHOLE, self.transport,
            self._telemetry, world.clock, seconds=0, stopped_clean=True,
        )  # fmt: skip
        return Doppelganger(parts)

    def _stream(self, name: str) -> random.Random:
        return random.Random(f"{self._person.name}/{name}")

    def _note(self, verified: VerifiedRollout) -> None:
        if verified.account == self._person.account:
            self._learner.see(verified)


def _say_nothing(_summary: RoundSummary) -> None:
    """Nothing: the status lines of a swarm's worth of nodes."""
