"""A node's road from gossip to verification with its real parts; it has no peers and trains nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from sapo_client.bench.swarm import BenchAuthor, BenchSwarm
from sapo_client.config import VerificationConfig
from sapo_client.node.auditing.audit import Audit, AuditShares
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.proofs import Proofs
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.supervisor import Supervisor
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.runtime.upkeep import keep_log_short, start_up_set_aside
from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.admission.equivocations import ProofBook
from sapo_verification.admission.rollouts import Admission
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.reputation.origins import Origins
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.screens.screens import Screens
from sapo_verification.verifier import Verifier

OWNER: Final = BenchAuthor(0)
"""Whose node it is."""


@dataclass
class BenchHarness:
    """What a node hears with, and what it verifies with."""

    swarm: BenchSwarm
    gossip: GossipHandlers
    verifier: Verifier
    audit: Audit
    slots: Iterator[int] = field(default_factory=lambda: iter(range(1 << 20)))


@asynccontextmanager
async def open_harness(authors: Sequence[BenchAuthor] = ()) -> AsyncIterator[BenchHarness]:
    """A desk that knows the authors' certificates, audits in the background, and whose workers are warm."""
    swarm = BenchSwarm()
    with (
        TemporaryDirectory(prefix="sapo-bench-") as folder,
        EventLog(Path(folder) / "events.jsonl") as events,
    ):
        database = Path(folder) / "bench.sqlite"
        beacons = Beacons(swarm.manifest, None, events)
        await beacons.obtain(0)
        checkers, reputation = CheckerPool(swarm.manifest.suite), Reputation(database)
        screens = Screens(swarm.manifest.suite.families, bytes(32), OWNER.account)
        pool, telemetry = Pool(database, PoolLimits(), reputation), _telemetry(swarm, events)
        verifier = Verifier(
            swarm.manifest.swarm_id, checkers.check, beacons.known, reputation, telemetry, screens
        )
        gossip = _gossip(swarm, authors, database, pool, reputation, telemetry, screens)
        config = VerificationConfig()
        shares = AuditShares(config.audit_share, config.audit_time)
        audit = Audit(
            gossip.audit_queue, verifier, pool, reputation, beacons, shares, events, random.Random(0)
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(checkers.run)
            nursery.start_soon(audit.run)
            nursery.start_soon(keep_log_short, database)
            with start_up_set_aside():
                yield BenchHarness(swarm, gossip, verifier, audit)
            nursery.cancel_scope.cancel()


def _telemetry(swarm: BenchSwarm, events: EventLog) -> Telemetry:
    metrics = NodeMetrics(version="bench", swarm_id=str(swarm.manifest.swarm_id), node_id=str(OWNER.node))
    return Telemetry(events, metrics, swarm.manifest.suite, OWNER.account)


def _gossip(
    swarm: BenchSwarm,
    authors: Sequence[BenchAuthor],
    database: Path,
    pool: Pool,
    reputation: Reputation,
    telemetry: Telemetry,
    screens: Screens,
) -> GossipHandlers:
    """Ears without peers: what they hear is handed to them."""
    manifest, now = swarm.manifest, partial(float, swarm.now_seconds)
    book = CertificateBook(manifest, database)
    for author in authors:
        book.judge(swarm.certificate(author), swarm.now_seconds)
    transport = MemoryTransport(
        MemoryHub(), peer_id_from_key(OWNER.node), on_bug=Supervisor(telemetry.events).note_bug
    )
    heard, proofs = EnvelopeStore(database), ProofBook(manifest, book, reputation, OWNER.account, database)
    return GossipHandlers(
        manifest, transport, book, Admission(manifest, book), pool, heard, telemetry, OWNER.account,
        OwnCertificate(OWNER.seed, OWNER.secret, manifest, now), now, Origins(database),
        Proofs(manifest, transport, proofs, heard, telemetry, OWNER.account, now), screens,
    )  # fmt: skip
