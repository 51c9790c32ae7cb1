"""Nodes with a ledger for tests: gossip, engine, real checkers, real contracts, and the test's clock."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Self

import trio
from support.gossip_harness import GossipHarness
from support.ledger import AUDITORS as FUNDED_AUDITORS
from support.ledger import Contracts, ServedChain, address, found, keys
from support.nodes import until
from support.swarm import Identity

from sapo_client import keystore
from sapo_client.config import Config, LedgerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.service import LedgerClient
from sapo_client.machine_marks import MachineApprovals
from sapo_client.node.auditing.audit import AUDITORS_SHARES, Audit
from sapo_client.node.auditing.auditor import Auditor, AuditorParts
from sapo_client.node.runtime.bonds import BondReader
from sapo_client.node.runtime.context import Author
from sapo_client.node.runtime.statements import SignedFields
from sapo_client.paths import DataDir
from sapo_client.swarm.simulated.memory import MemoryHub
from sapo_protocol.contributions import Approval, Proposal, Tally
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.tasks import assigned_task
from sapo_protocol.topics import contributions_topic
from sapo_verification.jail.checkers import CheckerPool
from sapo_verification.signing.database import SigningDatabase
from sapo_verification.tasks.generators import derive, solution
from sapo_verification.types import AdmittedRollout

QUORUM: Final = 2
FAR_SECONDS: Final = 4_000_000_000
"""End of registrations in tests, which is never reached."""

KINDS: Final = {Tally: Kind.TALLY, Proposal: Kind.PROPOSAL, Approval: Kind.APPROVAL}


@dataclass(frozen=True)
class Funded(Identity):
    """A participant whose account holds coins on the tests' chain."""

    @cached_property
    def secret(self) -> bytes:
        """The secret key of ``support.ledger.keys(number)``."""
        return self.number.to_bytes(32, "big")


WORKERS: Final = (Funded(2), Funded(3))
CROWD: Final = (*WORKERS, Funded(4), Funded(5))
AUDITORS: Final = tuple(
    sorted((Funded(number) for number in (11, 12, 13)), key=lambda identity: identity.account)
)
FOUR_AUDITORS: Final = tuple(sorted((*AUDITORS, Funded(14)), key=lambda identity: identity.account))
assert {identity.account for identity in AUDITORS} <= set(map(address, FUNDED_AUDITORS))


FIRST_TURN_SECONDS: Final = 13
"""Seconds into the next epoch at which the second grace is over: the first proposer's turn begins."""

TURN_SECONDS: Final = 6


@dataclass
class World:
    """One swarm with a chain, and its clock."""

    chain: ServedChain
    contracts: Contracts
    hub: MemoryHub
    root: Path
    auditing: list["AuditorHarness"] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        auditors: Sequence[Funded] = AUDITORS,
        quorum: int = QUORUM,
        workers: Sequence[Funded] = WORKERS,
        **terms: Any,
    ) -> Self:
        """Return a chain with the contracts, on which all given identities are registered."""
        accounts = tuple(identity.account for identity in auditors)
        contracts = found(root / "chain.sqlite", auditors=accounts, quorum=quorum, **terms)
        for identity in (*workers, *auditors):
            contracts.register(keys(identity.number), identity.node, FAR_SECONDS)
        return cls(contracts.chain, contracts, MemoryHub(), root)

    @classmethod
    @contextmanager
    def running(cls, root: Path, **options: Any) -> Iterator[Self]:
        """Yield ``create(root, **options)``; close its chain afterwards."""
        world = cls.create(root, **options)
        try:
            yield world
        finally:
            world.chain.close()

    @cached_property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.contracts.manifest()

    def now(self) -> float:
        """Return the time of all clocks in this world."""
        return self.chain.now_seconds

    def turn_to(self, epoch: int, seconds: float) -> None:
        """Set all clocks to a number of seconds after an epoch's beginning."""
        self.chain.now_seconds = epoch_start_seconds(self.manifest, epoch) + seconds

    async def until_posted(self, epoch: int, witness: "AuditorHarness") -> None:
        """Advance the clock, turn by turn, until the epoch is final on the chain."""
        for turn, patience_seconds in ((0, 4), (1, 4), (2, 4), (3, 30), (7, 60)):  # a busy machine takes long
            self.turn_to(epoch + 1, FIRST_TURN_SECONDS + turn * TURN_SECONDS)
            with trio.move_on_after(patience_seconds):
                while (record := await witness.ledger.last_record()) is None or record.root.epoch < epoch:
                    await trio.sleep(0.2)
                return
        raise AssertionError(f"epoch {epoch} was not posted")


class AuditorHarness:
    """One node with ledger, audits and auditor, composed as in a real node."""

    def __init__(self, world: World, identity: Funded, checkers: CheckerPool, *, audits: bool = True) -> None:
        self.world, self.identity, self.manifest = world, identity, world.manifest
        self.data = DataDir(world.root / str(identity.number)).create()
        self.data.manifest.write_text(manifest_to_json(self.manifest), encoding="utf-8")
        self.ledger = LedgerClient(
            manifest=self.manifest,
            account=keys(identity.number),
            rpc_urls=[world.chain.url],
            outbox_path=self.data.root / "outbox.sqlite",
        )
        self.node = GossipHarness(
            world.hub,
            identity,
            self.manifest,
            self.data.root,
            clock=world.now,
            check=checkers.check,
            block_hash_before=self.ledger.block_hash_before,
            final_root_before=self.ledger.final_root_before,
            final_roots_before=self.ledger.final_roots_before,
        )
        assert self.data.database == self.node.root / "node.sqlite"
        self.beacons = self.node.beacons
        self.bonds = BondReader(
            self.node.engine.standing,
            manifest=self.manifest,
            own=identity.account,
            bonds_before=self.ledger.bonds_before,
            clock=world.now,
            events=self.node.log,
        )
        self.contributions = self.node.engine.contributions
        self.parts = AuditorParts(
            author=Author(identity.seed, identity.node, identity.account),
            account_key=identity.secret if audits else None,
            transport=self.node.transport,
            ledger=self.ledger,
            gossip=self.node.gossip,
            engine=self.node.engine,
            telemetry=self.node.telemetry,
            clock=world.now,
            signing=SigningDatabase(self.data.database),
            beacons=self.beacons,
            machine=MachineApprovals(world.root / "locks", account=identity.account, node=identity.node),
            draw=lambda: 0.0,  # its clock stands still until a test moves it
        )
        self.auditor = Auditor(self.parts)

    async def run(self, *, sends: bool = True, acts: bool = True, verifies: bool = True) -> None:
        """Receive, audit and post until cancelled.

        Args:
            sends: whether what is queued for the chain is sent.
            acts: whether the auditor runs.
            verifies: whether what is queued for an audit is audited.
        """
        keep = self.node.supervisor.keep
        audit = Audit(engine=self.node.engine, beacons=self.beacons, time_share=AUDITORS_SHARES.time)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.node.transport.run)
            nursery.start_soon(self.node.run)
            nursery.start_soon(partial(keep, "bonds", self.bonds.run))
            if verifies:
                nursery.start_soon(partial(keep, "audit", audit.run))
            if sends:
                nursery.start_soon(partial(keep, "ledger", self.ledger.run))
            if not acts:
                return
            self.world.auditing.append(self)
            try:
                await keep("auditor", self.auditor.run)
            finally:
                self.world.auditing.remove(self)

    async def work(self, epoch: int, slot: int, *, right: int = 1, wrong: int = 1) -> AdmittedRollout:
        """Publish a group of right and wrong answers, as the node's rounds do."""
        admitted = await self.make(epoch, slot, right=right, wrong=wrong)
        await self.node.gossip.publish(admitted, self.node.message(admitted))
        await self.node.engine.verify(admitted)
        return admitted

    async def make(self, epoch: int, slot: int, *, right: int = 1, wrong: int = 1) -> AdmittedRollout:
        """Make such a group without sending it."""
        beacon = await self.beacons.obtain(epoch)
        family = self.manifest.suite.families[0]
        task = assigned_task(
            self.manifest.swarm_id, beacon, account=self.identity.account, family=0, slot=slot
        )
        answer = solution(family, derive(family, task.seed))
        assert answer is not None
        answers = (answer.encode(),) * right + (b"no answer",) * wrong
        message = self.identity.message(self.manifest, epoch=epoch, slot=slot, completions=answers)
        return self.node.engine.admit_own(message, self.world.now())

    async def publish_message(self, message: Tally | Proposal | Approval) -> ContentId:
        """Publish a contribution message under this node's signature, also a false one.

        Every auditor hears it: one that is still reading the ledger's terms is waited for.
        """
        await until(lambda: all(each.node.gossip.hears_contributions for each in self.world.auditing))
        kind = KINDS[type(message)]
        envelope = seal(kind, self.manifest.swarm_id, message.to_payload(), self.identity.seed)
        topic = contributions_topic(self.manifest.swarm_id)
        await self.node.transport.publish(topic, envelope.to_bytes())
        return envelope.content_id

    def config(self) -> Config:
        """Return the configuration of commands in this node's data directory."""
        key = self.data.root / "key.json"
        if not key.exists():
            keystore.create(key, None, node_seed=self.identity.seed, account_key=self.identity.secret)
        ledger = LedgerConfig(rpc_urls=(self.world.chain.url,))
        return Config(identity=str(key), data_dir=self.data.root, ledger=ledger)


def agree(_: Sequence[SignedFields]) -> None:
    """Consent to every signature."""


def refuse(_: Sequence[SignedFields]) -> None:
    """Refuse every signature."""
    raise SapoError("nothing was signed", hint="agree next time", exit_code=ExitCode.KEYSTORE)


@asynccontextmanager
async def checking(world: World) -> AsyncIterator[tuple[trio.Nursery, CheckerPool]]:
    """Yield a nursery for harnesses, and the checkers that they share."""
    checkers = CheckerPool(world.manifest.suite)
    async with trio.open_nursery() as nursery:
        await nursery.start(checkers.run)
        yield nursery, checkers
        nursery.cancel_scope.cancel()


async def connect(*harnesses: AuditorHarness) -> None:
    """Connect all nodes to each other and wait until each knows the certificates of all."""
    await until(lambda: all(harness.node.hub.node(harness.node.peer_id) for harness in harnesses))
    for index, harness in enumerate(harnesses):
        for other in harnesses[:index]:
            await harness.node.transport.connect(other.node.address)
    await until(lambda: all(a.node.knows(b.node) for a in harnesses for b in harnesses))
