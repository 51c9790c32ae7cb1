"""A node's path from gossip to verification, with its real parts, but without peers and training."""

from __future__ import annotations

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
from sapo_client.node.auditing.audit import Audit
from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.supervisor import Supervisor
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.node.runtime.upkeep import keep_log_short, start_up_set_aside
from sapo_client.observe.events import EventLog
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.topics import certificates_topic
from sapo_verification.engine import Engine
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.sampling.engine_terms import Terms

OWNER: Final = BenchAuthor(0)
"""The operator of the measured node."""


@dataclass
class BenchHarness:
    """One node's engine, which receives messages from the benchmark."""

    swarm: BenchSwarm
    engine: Engine
    gossip: GossipHandlers
    slots: Iterator[int] = field(default_factory=lambda: iter(range(1 << 20)))


@asynccontextmanager
async def open_harness(authors: Sequence[BenchAuthor] = ()) -> AsyncIterator[BenchHarness]:
    """Open a node that knows the authors' certificates and audits in the background; its workers are warm."""
    swarm, config = BenchSwarm(), VerificationConfig()
    with (
        TemporaryDirectory(prefix="sapo-bench-") as folder,
        EventLog(Path(folder) / "events.jsonl") as events,
    ):
        database = Path(folder) / "bench.sqlite"
        beacons = Beacons(swarm.manifest, NoChain().block_hash_before, events)
        await beacons.obtain(0)
        checkers, telemetry = CheckerPool(swarm.manifest.suite), _telemetry(swarm, events)
        engine = Engine(
            swarm.manifest,
            database,
            own=OWNER.account,
            check=checkers.check,
            beacon_of=beacons.known,
            key=bytes(32),
            terms=Terms(audit_share=config.audit_share),
            observers=[telemetry],
        )
        for author in authors:
            topic = certificates_topic(swarm.manifest.swarm_id)
            engine.receive(topic, swarm.certificate(author), swarm.now_seconds)
        audit = Audit(engine=engine, beacons=beacons, time_share=config.audit_time)
        async with trio.open_nursery() as nursery:
            await nursery.start(checkers.run)
            nursery.start_soon(audit.run)
            nursery.start_soon(keep_log_short, database)
            with start_up_set_aside():
                yield BenchHarness(swarm, engine, _gossip(swarm, engine, telemetry))
            nursery.cancel_scope.cancel()


def _telemetry(swarm: BenchSwarm, events: EventLog) -> Telemetry:
    metrics = NodeMetrics(version="bench", swarm_id=str(swarm.manifest.swarm_id), node_id=str(OWNER.node))
    return Telemetry(events, metrics, swarm.manifest.suite, OWNER.account)


def _gossip(swarm: BenchSwarm, engine: Engine, telemetry: Telemetry) -> GossipHandlers:
    """Return handlers without peers; the benchmark passes messages to them."""
    clock = partial(float, swarm.now_seconds)
    transport = MemoryTransport(
        MemoryHub(), peer_id_from_key(OWNER.node), on_bug=Supervisor(telemetry.events).note_bug
    )
    certificate = OwnCertificate(
        node_seed=OWNER.seed, account_key=OWNER.secret, manifest=swarm.manifest, clock=clock
    )
    return GossipHandlers(
        engine=engine,
        transport=transport,
        own_certificate=certificate,
        telemetry=telemetry,
        clock=clock,
    )
