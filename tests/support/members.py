"""Members of a swarm in a state machine, which start, crash and restart: honest ones and an attacker.

An honest member is a node without its learner: gossip, engine, signing database, audit with the real checkers
(without their jail), beacons of a chain. Its process may end before any write to its databases.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from support.crashing import CrashControl, Killed
from support.gossip_harness import GossipHarness
from support.mock_clock_runner import MockClockRunner
from support.swarm import EPOCH, Identity, moment

from sapo_client.ledger.errors import LedgerError, LedgerUnavailable
from sapo_client.node.auditing.audit import Audit
from sapo_client.node.auditing.chain import NoChain
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.constants import EPOCH_WINDOW
from sapo_protocol.encoding import encode
from sapo_protocol.epochs import epoch_at
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.manifest import Manifest
from sapo_protocol.tasks import assigned_task
from sapo_protocol.topics import certificates_protocol, equivocations_protocol
from sapo_verification.signing.database import SigningDatabase

if TYPE_CHECKING:
    from trio_typing import TaskStatus
from sapo_verification.tasks.generators import derive, solution
from sapo_verification.types import AdmittedRollout

Slot = tuple[bytes, int, int]
"""Account, epoch and slot."""


@dataclass
class World:
    """State that the members share: the network, the true time, the chain.

    Attributes:
        signed: the messages that honest members put into each slot, sent or not.
    """

    runner: MockClockRunner
    hub: MemoryHub
    root: Path
    manifest: Manifest
    chain_is_away: bool = False
    signed: dict[Slot, set[bytes]] = field(default_factory=dict)

    def now(self) -> float:
        """Unix seconds."""
        return moment(self.manifest, EPOCH) + self.runner.clock.current_time()

    async def block_hash_before(self, moment_seconds: int) -> bytes:
        """Return a block hash that is made from the time; raise for a time in the future."""
        await trio.lowlevel.checkpoint()
        if self.chain_is_away:
            raise LedgerUnavailable(["chain"], "away")
        if moment_seconds > self.now():
            raise LedgerError("the moment is still to come", hint="check this machine's clock")
        return moment_seconds.to_bytes(32, "big")

    @property
    def messages(self) -> list[bytes]:
        """All messages that honest members signed, in order."""
        return [message for messages in self.signed.values() for message in sorted(messages)]


class NodeProcess:
    """One run of a member's node."""

    def __init__(self, world: World, identity: Identity, root: Path, clock: "partial[float]") -> None:
        ask = world.block_hash_before if world.manifest.has_chain else NoChain().block_hash_before
        self.node = GossipHarness(
            world.hub, identity, world.manifest, root, clock=clock, block_hash_before=ask
        )
        self.signing = SigningDatabase(root / "node.sqlite")
        self.beacons = self.node.beacons
        self.audit = Audit(engine=self.node.engine, beacons=self.beacons, time_share=1.0)
        self.life = trio.CancelScope()
        self.over = trio.Event()
        self.nursery: trio.Nursery | None = None
        self.crashes = CrashControl()
        self.crashes.wrap_engine(self.node.engine)
        self.crashes.wrap(self.signing)

    async def live(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Run until killed from outside or ended at a write."""
        keep = self.node.supervisor.keep
        try:
            with self.life:
                self.node.restore()
                async with trio.open_nursery() as self.nursery:
                    await self.nursery.start(self.node.transport.run)
                    self.nursery.start_soon(self.node.run)
                    self.nursery.start_soon(partial(keep, "audit", self.audit.run))
                    task_status.started()
        except* Killed:
            pass
        self.over.set()


class Member:
    """An honest member, whose data directory remains between its processes."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.identity = Identity(number)
        self.root = world.root / str(number)
        self.clock_error_seconds = 0.0
        self.process: NodeProcess | None = None
        self.processes: list[NodeProcess] = []
        self.answers_made = 0
        self._clock_is_steady = True
        self.left_waiting: list[AdmittedRollout] = []
        self._waiting_at_end: tuple[AdmittedRollout, ...] = ()

    def now(self) -> float:
        """Return the time of its clock."""
        return self.world.now() + self.clock_error_seconds

    @property
    def epoch(self) -> int:
        """The epoch by its clock."""
        return epoch_at(self.world.manifest, self.now())

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and not self.process.over.is_set()

    @property
    def node(self) -> GossipHarness:
        """The running process's gossip and engine."""
        assert self.process is not None
        return self.process.node

    async def start(self) -> None:
        """Start a new process with the old data; ``left_waiting`` is what it must still hold."""
        self.left_waiting, self._clock_is_steady = self._left_waiting(), True
        self.process = NodeProcess(self.world, self.identity, self.root, partial(self.now))
        self.processes.append(self.process)
        await self.world.runner.nursery.start(self.process.live)
        self.world.runner.nursery.start_soon(self._watch_end, self.process)

    async def _watch_end(self, process: NodeProcess) -> None:
        await process.over.wait()
        self._record_waiting()

    def step_clock(self, seconds: float) -> None:
        """Change its clock's error."""
        self.clock_error_seconds += seconds
        self._clock_is_steady = self._clock_is_steady and not seconds

    def _left_waiting(self) -> list[AdmittedRollout]:
        """Return what waited at the last end and is still admitted; none if the clock was changed since."""
        if not self._clock_is_steady:
            return []
        return [one for one in self._waiting_at_end if one.rollout.epoch >= self.epoch - EPOCH_WINDOW]

    def _record_waiting(self) -> None:
        """Record which rollouts wait; one that was not stored yet was not admitted."""
        node = self.node
        self._waiting_at_end = tuple(one for one in node.pool.waiting() if node.envelopes.has(one.content_id))

    async def kill(self) -> None:
        """End the process without closing or writing anything."""
        assert self.process is not None
        self.process.crashes.budget.left = 0
        self.process.life.cancel()
        await trio.testing.wait_all_tasks_blocked()

    async def publish(self) -> None:
        """Obtain the beacon, take a slot, answer its task, seal, admit and send, as the rounds do."""
        assert self.process is not None
        assert self.process.nursery is not None
        if self.now() < self.world.manifest.genesis_seconds:
            return  # the swarm has not begun by its clock: the rounds wait
        epoch = self.epoch
        self.process.nursery.start_soon(self.process.beacons.obtain, epoch)
        await trio.testing.wait_all_tasks_blocked()
        try:
            await self._answer(epoch)
        except Killed:
            await self.kill()

    async def _answer(self, epoch: int) -> None:
        assert self.process is not None
        process, manifest, account = self.process, self.world.manifest, self.identity.account
        beacon = process.beacons.known(epoch)
        if beacon is None:
            return  # the rounds wait for it
        try:
            slots = process.signing.take_slots(
                manifest.swarm_id,
                account,
                epoch,
                count=1,
                slots_per_epoch=manifest.limits.slots_per_epoch,
            )
        except LocalProtocolError:
            return  # its clock was set back: the rounds wait until the epoch comes again
        for slot in slots:
            task = assigned_task(manifest.swarm_id, beacon, account=account, family=0, slot=slot)
            family = manifest.suite.families[0]
            answer = solution(family, derive(family, task.seed))
            assert answer is not None
            self.answers_made += 1
            answers = (answer.encode(), f"{self.answers_made} of {account}".encode())
            rollout = self.identity.rollout(epoch=epoch, slot=slot, completions=answers)
            message = self.identity.seal(manifest, rollout).to_bytes()
            self.world.signed.setdefault((account, epoch, slot), set()).add(message)
            process.node.gossip.keep_certificate_valid()
            admitted = process.node.engine.admit_own(message, self.now())
            await process.node.gossip.publish(admitted, message)


class Mallory:
    """An attacker with two keys of one account, who sends any message to any member."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.keys = (Identity(number), Identity(number, key=1))
        self.transport = MemoryTransport(world.hub, peer_id_from_key(self.keys[0].node), on_bug=_raise)
        swarm = world.manifest.swarm_id
        self.transport.serve(equivocations_protocol(swarm), self._nothing)
        self.transport.serve(certificates_protocol(swarm), self._certificates)

    async def start(self) -> None:
        """Connect to the network."""
        await self.world.runner.nursery.start(self.transport.run)

    def send(self, to: Member, topic: str, message: bytes) -> None:
        """Send a message to one member, if they are connected."""
        self.world.hub.carry(self.transport.peer_id, to.node.peer_id, topic, message)

    def certificates(self) -> Iterator[bytes]:
        """Yield the genuine certificates of its keys."""
        now = int(self.world.now())
        return (key.certificate(self.world.manifest, now - 60, now + 86_400).to_bytes() for key in self.keys)

    async def _certificates(self, _peer_id: str, _request: bytes) -> bytes:
        return encode(tuple(self.certificates()))

    async def _nothing(self, _peer_id: str, _request: bytes) -> bytes:
        return encode(())


def _raise(error: Exception) -> None:
    raise error
