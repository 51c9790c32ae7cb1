"""The hearing half of a node: gossip, admission, pool and event file on an in-memory network; no learner."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from support.swarm import Identity, moment

from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.gossip.proofs import Proofs
from sapo_client.node.runtime.supervisor import Supervisor
from sapo_client.node.runtime.telemetry import Telemetry
from sapo_client.observe.events import Event, EventLog, read_events
from sapo_client.observe.metrics import NodeMetrics
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
from sapo_verification.screens.screens import Screens
from sapo_verification.types import AdmittedRollout


@dataclass
class GossipHarness:
    """One node's hearing, wired as the node wires it.

    Attributes:
        root: its databases and its event file; give it again to start the node again.
    """

    hub: MemoryHub
    person: Identity
    manifest: Manifest
    root: Path
    limits: PoolLimits = field(default_factory=PoolLimits)
    clock: Callable[[], float] | None = None
    host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        manifest, database = self.manifest, self.root / "node.sqlite"
        self.now = self.clock or (lambda: moment(manifest))
        self.log = EventLog(self.root / "events.jsonl")
        self.supervisor = Supervisor(self.log)
        self.peer_id = peer_id_from_key(self.person.node)
        self.address = f"/memory/{self.peer_id}/p2p/{self.peer_id}"
        self.transport = MemoryTransport(
            self.hub, self.peer_id, on_bug=self.supervisor.note_bug, host=self.host
        )
        self.book = CertificateBook(manifest, database)
        self.admission = Admission(manifest, self.book)
        self.reputation = Reputation(database)
        self.pool = Pool(database, self.limits, self.reputation)
        self.heard = EnvelopeStore(database)
        self.origins = Origins(database)
        self.screens = Screens(manifest.suite.families, b"key", self.person.account)
        metrics = NodeMetrics(version="0", swarm_id=str(manifest.swarm_id), node_id=str(self.person.node))
        self.telemetry = Telemetry(self.log, metrics, manifest.suite, self.person.account)

    @cached_property
    def proofs(self) -> Proofs:
        """Its proofs of equivocation."""
        own, database = self.person.account, self.root / "node.sqlite"
        book = ProofBook(self.manifest, self.book, self.reputation, own, database)
        return Proofs(self.manifest, self.transport, book, self.heard, self.telemetry, own, self.now)

    @cached_property
    def gossip(self) -> GossipHandlers:
        """Its ears."""
        certificate = OwnCertificate(self.person.seed, self.person.secret, self.manifest, self.now)
        return GossipHandlers(
            self.manifest, self.transport, self.book, self.admission, self.pool, self.heard,
            self.telemetry, self.person.account, certificate, self.now, self.origins, self.proofs,
            self.screens,
        )  # fmt: skip

    async def run(self) -> None:
        """Hears, under the node's supervisor, until cancelled."""
        await self.supervisor.keep("gossip", self.gossip.run)

    async def publish(self, **changes: object) -> AdmittedRollout:
        """An own rollout, admitted here and sent."""
        message = self.person.message(self.manifest, **changes)
        admitted = self.admission.judge(message, self.now())
        await self.gossip.publish(admitted)
        return admitted

    def knows(self, other: "GossipHarness | Identity") -> bool:
        """Whether somebody's certificate is in the book."""
        person = other.person if isinstance(other, GossipHarness) else other
        return person.account in self.book.accounts_of(person.node)

    def pooled(self) -> set[bytes]:
        """The content ids that wait in the pool."""
        return {bytes(admitted.content_id) for admitted in self.pool.waiting()}

    def events(self, *names: str) -> list[Event]:
        """What it wrote down, all of it or the named events."""
        return [e for e in read_events(self.root / "events.jsonl") if not names or e["event"] in names]
