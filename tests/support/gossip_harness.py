"""Harness of a node without its learner: gossip, engine and event file on an in-memory network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from support.swarm import Identity, moment
from support.verification_harness import score_in_process

from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.runtime.beacons import Beacons, BlockHashBefore
from sapo_client.node.runtime.paid_accounts import FinalRootsBefore
from sapo_client.node.runtime.records import FinalRootBefore, Records, no_archive
from sapo_client.node.runtime.supervisor import Supervisor
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.observe.events import Event, EventLog, read_events
from sapo_client.observe.metrics import NodeMetrics
from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.manifest import Manifest
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.admission.envelope_store import EnvelopeStore
from sapo_verification.engine import Engine
from sapo_verification.observer import Observer
from sapo_verification.reputation.evidence import Reputation
from sapo_verification.reputation.origins import Origins
from sapo_verification.sampling.engine_terms import Terms
from sapo_verification.sampling.pool import Pool, PoolLimits
from sapo_verification.types import AdmittedRollout
from sapo_verification.verifier import Check

UNPACED: Final = replace(TransportLimits(), messages=Rate(1e9, 1e9), bytes=Rate(1e12, 1e12))
"""Limits of an attacker, which sends as fast as it can."""


@dataclass
class GossipHarness:
    """One node's gossip and engine, composed as in a real node.

    Attributes:
        root: folder of its databases and its event file; with the same folder the node is restarted.
        check: the checkers; the real scorers in this process unless others are given.
        observers: of the engine, beside telemetry.
    """

    hub: MemoryHub
    identity: Identity
    manifest: Manifest
    root: Path
    limits: PoolLimits = field(default_factory=PoolLimits)
    clock: Callable[[], float] | None = None
    host: str = "127.0.0.1"
    transport_limits: TransportLimits | None = None
    check: Check | None = None
    block_hash_before: BlockHashBefore = NoChain().block_hash_before
    audit_share: float = 1.0
    observers: Sequence[Observer] = ()
    final_root_before: FinalRootBefore = NoChain().final_root_before
    final_roots_before: FinalRootsBefore = NoChain().final_roots_before

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        manifest = self.manifest
        self.now = self.clock or (lambda: moment(manifest))
        self.log = EventLog(self.root / "events.jsonl")
        self.supervisor = Supervisor(self.log)
        self.peer_id = peer_id_from_key(self.identity.node)
        self.address = f"/memory/{self.peer_id}/p2p/{self.peer_id}"
        self.transport = self.open_transport()
        metrics = NodeMetrics(version="0", swarm_id=str(manifest.swarm_id), node_id=str(self.identity.node))
        self.telemetry = Telemetry(self.log, metrics, manifest.suite, self.identity.account)
        records = Records(manifest, self.final_root_before, no_archive)
        self.beacons = Beacons(manifest, self.block_hash_before, self.log, records)
        self.engine = Engine(
            manifest,
            self.root / "node.sqlite",
            own=self.identity.account,
            check=self.check or score_in_process(manifest),
            beacon_of=self.beacons.known,
            key=b"key",
            terms=Terms(pool=self.limits, audit_share=self.audit_share),
            observers=[self.telemetry, *self.observers],
            record_of=records.known,
        )
        records.archive = self.engine.contributions.record
        self.gossip = GossipHandlers(
            engine=self.engine,
            transport=self.transport,
            own_certificate=OwnCertificate(
                node_seed=self.identity.seed,
                account_key=self.identity.secret,
                manifest=manifest,
                clock=self.now,
            ),
            telemetry=self.telemetry,
            clock=self.now,
            beacons=self.beacons,
            final_roots_before=self.final_roots_before,
            records_file=self.root / "address-records",
        )

    def open_transport(self) -> MemoryTransport:
        """Return its connection to the in-memory network; another harness may have another one."""
        return MemoryTransport(
            self.hub,
            self.peer_id,
            on_bug=self.supervisor.note_bug,
            host=self.host,
            limits=self.transport_limits,
        )

    @property
    def certificates(self) -> CertificateStore:
        """The engine's certificates."""
        return self.engine.certificates

    @property
    def reputation(self) -> Reputation:
        """The engine's reputation."""
        return self.engine.reputation

    @property
    def pool(self) -> Pool:
        """The engine's pool."""
        return self.engine.pool

    @property
    def envelopes(self) -> EnvelopeStore:
        """The engine's envelopes."""
        return self.engine.envelopes

    @property
    def origins(self) -> Origins:
        """The engine's origins."""
        return self.engine.origins

    def message(self, admitted: AdmittedRollout) -> bytes:
        """Return the stored message of a rollout."""
        message = self.envelopes.envelope(admitted.content_id)
        assert message is not None
        return message

    def restore(self) -> None:
        """Restore the engine, as a node does at its start."""
        self.engine.restore(self.now())

    async def run(self) -> None:
        """Receive and send under the node's supervisor until cancelled."""
        await self.supervisor.keep("gossip", self.gossip.run)

    async def publish(self, **changes: object) -> AdmittedRollout:
        """Admit an own rollout, send it, and return it."""
        message = self.identity.message(self.manifest, **changes)
        admitted = self.engine.admit_own(message, self.now())
        await self.gossip.publish(admitted, message)
        return admitted

    def knows(self, other: "GossipHarness | Identity") -> bool:
        """Whether another node's certificate is known here."""
        identity = other.identity if isinstance(other, GossipHarness) else other
        return identity.account in self.certificates.accounts_of(identity.node)

    def pooled(self) -> set[bytes]:
        """Return the content ids that wait in the pool."""
        return {bytes(admitted.content_id) for admitted in self.pool.waiting()}

    def events(self, *names: str) -> list[Event]:
        """Return all its events, or those with the given names."""
        return [e for e in read_events(self.root / "events.jsonl") if not names or e["event"] in names]
