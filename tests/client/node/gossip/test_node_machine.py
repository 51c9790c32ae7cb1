"""Nodes that join, rotate keys, crash, have wrong clocks and meet an attacker: invariants in all cases.

Rules act on real nodes over the in-memory network; time stands still between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.crashing import Killed
from support.lies import Liar
from support.members import Mallory, Member, World
from support.mock_clock_runner import MockClockRunner
from support.swarm import Identity, make_chain_manifest, make_manifest

from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import LinkConditions, MemoryHub
from sapo_client.swarm.transport import TransportError
from sapo_protocol.constants import EPOCH_WINDOW, PROOF_EPOCHS
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.epochs import epoch_at
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.topics import rollouts_topic

NUMBERS = (1, 2, 3)
MALLORY = 9
MAX_KEYS = 4
"""As many keys of an account as are known at a time: a fifth would make the first one unknown."""

members = st.integers(0, len(NUMBERS) - 1)
CALM = LinkConditions()


class NodeMachine(RuleBasedStateMachine):
    """Three honest nodes and an attacker."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()

    @initialize(seed=st.integers(0, 2**16), chained=st.booleans())
    def found(self, seed: int, chained: bool) -> None:
        self.runner = MockClockRunner()
        manifest = make_chain_manifest() if chained else make_manifest()
        self.world = World(self.runner, MemoryHub(seed), Path(self.folder.name), manifest)
        self.members = [Member(self.world, number) for number in NUMBERS]
        self.mallory = Mallory(self.world, MALLORY)
        self.lies = 0
        self.runner.act(self.mallory.start)
        for member in self.members:
            self._join(member)
        self._look()

    # Events of nodes

    @rule(which=members)
    def join(self, which: int) -> None:
        """Start a node again from its directory if it is down; connect it to all others."""
        self._join(self.members[which])

    @rule(which=members)
    def crash(self, which: int) -> None:
        if (member := self.members[which]).alive:
            self.runner.act(member.kill)

    @rule(which=members, writes=st.integers(0, 12))
    def crash_soon(self, which: int, writes: int) -> None:
        """Let the process end between two later statements of its databases."""
        if (member := self.members[which]).alive:
            assert member.process is not None
            member.process.crashes.budget.left = writes

    @rule(which=members)
    def rotate(self, which: int) -> None:
        """Change the account to a new key, in the same data directory."""
        member = self.members[which]
        if member.identity.key + 1 < MAX_KEYS:
            self.crash(which)
            member.identity = Identity(member.identity.number, member.identity.key + 1)
            self._join(member)

    @rule(which=members, count=st.integers(1, 3))
    def publish(self, which: int, count: int) -> None:
        for _ in range(count):
            if self.members[which].alive:
                self.runner.act(self.members[which].publish)

    @rule(which=members)
    def take(self, which: int) -> None:
        """Take the rollout that has waited longest, as the sampler does."""
        member = self.members[which]
        if member.alive and (waiting := next(member.node.pool.waiting(), None)) is not None:
            self.runner.act(_dying, member, lambda: member.node.pool.take(waiting.content_id))

    # Events of the network and the chain

    @rule(seconds=st.sampled_from([0.5, 1, 5, 30, 61, 600, 20 * 86_400]))
    def life_goes_on(self, seconds: float) -> None:
        """Advance the clock; all running nodes publish before and after it."""
        for pause in (seconds, 1.0):
            for which in range(len(self.members)):
                self.publish(which, 1)
            self.runner.wait(pause)
        self._look()

    @rule(which=members, seconds=st.sampled_from([-7200, -90, -30, -5, -0.4, 0.4, 5, 30, 90, 7200]))
    def clock_steps(self, which: int, seconds: float) -> None:
        self.members[which].step_clock(seconds)

    @rule(
        latency=st.sampled_from([0.0, 0.1, 3.0]),
        loss=st.sampled_from([0.0, 0.5]),
        copies=st.sampled_from([0.0, 0.5]),
        cut_off=st.one_of(st.none(), members),
        chain_is_away=st.booleans(),
    )
    def surroundings_change(
        self, latency: float, loss: float, copies: float, cut_off: int | None, chain_is_away: bool
    ) -> None:
        """Change delays, losses and duplicates, cut off a node, or stop or start the chain."""
        self.world.hub.conditions = LinkConditions(0.0, latency, loss, copies)
        self.world.hub.heal()
        if cut_off is not None and self.members[cut_off].alive:
            self.world.hub.partition([self.members[cut_off].node.peer_id])
        self.world.chain_is_away = chain_is_away

    # Actions of the attacker

    @rule(which=members, said=st.lists(st.integers(0, 11), min_size=1, max_size=4), about=st.integers(0, 99))
    def liar_speaks(self, which: int, said: list[int], about: int) -> None:
        if not (messages := self.world.messages):
            return  # there is no message yet that could be modified
        victim = self.members[about % len(self.members)].identity
        genuine, now = messages[about % len(messages)], self.world.now()
        liar = Liar(self.world.manifest, self.mallory.keys[0], victim, genuine, now, self._next_lie())
        lies = list(liar.lies())
        for lie in said:
            self._send(which, *lies[lie])

    @rule(first=members, second=members, slot=st.integers(0, 3), keys=st.integers(0, 1))
    def liar_equivocates(self, first: int, second: int, slot: int, keys: int) -> None:
        """Send one content to one member and a different one to another."""
        topic, epoch, lie = rollouts_topic(self.world.manifest.swarm_id), self._epoch(), self._next_lie()
        for number, (which, key) in enumerate([(first, 0), (second, keys)]):
            answers = (f"{lie} {number}".encode(), b"7")
            author = self.mallory.keys[key]
            message = author.message(self.world.manifest, epoch=epoch, slot=slot, completions=answers)
            self._send(which, topic, message)

    # Recovery

    @rule()
    def everything_heals(self) -> None:
        """Start all nodes, correct the clocks, start the chain, connect all anew: then all nodes agree."""
        self.world.hub.conditions = CALM
        self.world.hub.heal()
        self.world.chain_is_away = False
        for member in self.members:
            member.step_clock(-member.clock_error_seconds)
            if member.alive:
                assert member.process is not None
                member.process.crashes.budget.left = None
        self._pass(12)  # what is still on its way arrives
        self.runner.wait(61)  # nodes whose certificate was made under a wrong clock have a new one
        self._part()
        self._pass(2)
        for member in self.members:
            self._join(member)
        self._pass(4)
        self._agree()

    def _agree(self) -> None:
        """Assert that nodes agree about all keys, honest accounts' messages, and bans."""
        epoch, every = self._epoch(), [member.node for member in self.members]
        assert all(node.knows(member.identity) for node in every for member in self.members)
        first = max(0, epoch - EPOCH_WINDOW)
        sent = set().union(*(self._contents(node.envelopes.since(first)) for node in every))
        honest = {member.identity.account for member in self.members}
        for member in self.members:
            stored = self._contents(member.node.envelopes.since(first))
            assert {one for one in sent if one.account in honest} <= stored
        bans = [node.reputation.is_banned(self.mallory.keys[0].account, epoch) for node in every]
        assert _alike(bans)
        assert bans[0] or not _differ(sent)
        proofs = [node.engine.proofs._messages for node in every]
        assert _alike({key for key in proof_keys if key[0] >= epoch - PROOF_EPOCHS} for proof_keys in proofs)

    # Invariants

    @invariant()
    def nothing_fails(self) -> None:
        for member in self._alive():
            assert member.node.transport.counters()["bugs"] == 0, member.node.events("service_failed")

    @invariant()
    def nobody_honest_is_blamed(self) -> None:
        accounts = [member.identity.account for member in self.members]
        peers = [
            peer_id_from_key(Identity(number, key).node) for number in NUMBERS for key in range(MAX_KEYS)
        ]
        for member in self._alive():
            reputation = member.node.reputation
            assert [account for account in accounts if reputation.is_banned(account, -1)] == []
            assert [account for account in accounts if reputation.evidence(account, 0).bad > 0] == []
            blamed = partial(_negative, member.node.transport.score, peers)
            assert self.runner.see(blamed) == []

    @invariant()
    def no_slot_is_signed_twice(self) -> None:
        world = getattr(self, "world", None)
        assert world is None or all(len(messages) == 1 for messages in world.signed.values())

    @invariant()
    def every_message_received_is_counted_once(self) -> None:
        for member in self._alive():
            count = member.node.transport.counters()
            fates = ("accepted", "ignored", "rejected", "duplicates", "oversize")
            assert count["received"] == sum(count[fate] for fate in fates)

    @invariant()
    def what_waits_was_heard(self) -> None:
        for member in self._alive():
            node = member.node
            assert all(node.envelopes.has(rollout.content_id) for rollout in node.pool.waiting())

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.everything_heals()
            for member in self.members:
                _require_clean_record(member)
        finally:
            self.runner.close()
            for member in self.members:
                for process in member.processes:
                    process.crashes.close()
                    process.node.log.close()
            self.folder.cleanup()

    # Helpers

    def _alive(self) -> list[Member]:
        return [member for member in getattr(self, "members", []) if member.alive]

    def _contents(self, messages: Iterable[bytes]) -> set[Content]:
        """Return the contents of all rollouts of the epochs that are admitted now."""
        epoch, found = self._epoch(), set()
        for message in messages:
            envelope = parse_envelope(message, self.world.manifest.swarm_id)
            rollout = parse_rollout(envelope.payload)
            if epoch - EPOCH_WINDOW <= rollout.epoch <= epoch:
                found.add(Content(envelope.content_id, rollout.account, rollout.epoch, rollout.slot))
        return found

    def _next_lie(self) -> int:
        self.lies += 1
        return self.lies

    def _epoch(self) -> int:
        return epoch_at(self.world.manifest, self.world.now())

    def _join(self, member: Member) -> None:
        if not member.alive:
            self.runner.act(member.start)
            honest = {other.identity.account for other in self.members}
            assert {
                one.content_id for one in member.left_waiting if one.account in honest
            } <= member.node.pooled()
        others = [other.node.transport for other in self._alive() if other is not member]
        for other in (*others, self.mallory.transport):
            self.runner.act(self._connect, other.connect, member.node.address)

    async def _connect(self, connect: Callable[[str], Awaitable[None]], address: str) -> None:
        try:
            await connect(address)
        except TransportError:
            return  # cut off, or refused: a real transport dials again

    def _part(self) -> None:
        """End every connection."""
        transports = [self.mallory.transport, *(member.node.transport for member in self._alive())]
        for one, other in combinations(transports, 2):
            one.drop(other.peer_id)
            other.drop(one.peer_id)

    def _look(self) -> None:
        self._pass(2)

    def _pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.runner.wait(1.0)

    def _send(self, which: int, topic: str, message: bytes) -> None:
        if (member := self.members[which]).alive:
            self.runner.act(_soon, lambda: self.mallory.send(member, topic, message))


async def _soon(action: Callable[[], object]) -> None:
    await trio.lowlevel.checkpoint()
    action()


async def _dying(member: Member, action: Callable[[], object]) -> None:
    try:
        action()
    except Killed:
        await member.kill()


@dataclass(frozen=True)
class Content:
    """Content of one slot."""

    content_id: bytes
    account: bytes
    epoch: int
    slot: int


def _differ(contents: set[Content]) -> bool:
    """Whether any slot has two contents."""
    return len({(one.account, one.epoch, one.slot) for one in contents}) < len(contents)


def _alike(values: Iterable[object]) -> bool:
    first, *others = values
    return all(other == first for other in others)


def _negative(score: Callable[[str], float], peers: Iterable[str]) -> list[str]:
    """Return the peers with a negative score."""
    return [peer for peer in peers if score(peer) < 0]


def _require_clean_record(member: Member) -> None:
    """Assert that in all runs of a member no service failed and no rollout was admitted twice."""
    assert member.node.events("service_failed", "own_slot_taken_twice") == []
    admitted = Counter(event["content_id"] for event in member.node.events("admitted"))
    assert [content_id for content_id, times in admitted.items() if times > 1] == []


TestNodeMachine = NodeMachine.TestCase
TestNodeMachine.settings = settings(
    max_examples=min(600, settings().max_examples // 4),  # a second each: under pytest's limit
    stateful_step_count=30,
)
