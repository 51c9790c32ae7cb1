"""One node of a simulation: the engine and gossip of a real node, on the simulated mesh."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.scale.plan import SUCCESS, Participant, ScalePlan
from sapo_client.node.gossip.authors import author_of
from sapo_client.node.gossip.unintroduced import UnintroducedMessages
from sapo_client.swarm.addresses import PeerAddress
from sapo_client.swarm.intake import message_id
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.relays import Relays
from sapo_client.swarm.simulated.mesh import MeshNetwork, MeshNode
from sapo_client.swarm.sought import SoughtFor, SoughtPeers
from sapo_client.swarm.transport import Validator
from sapo_client.swarm.vouched import VouchedPeers
from sapo_protocol.certificate import Certificate
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import NodeId
from sapo_protocol.rollout import Rollout
from sapo_protocol.tasks import assigned_task
from sapo_protocol.topics import certificates_topic, equivocations_topic, rollouts_topic
from sapo_verification.admission.arrivals import Received
from sapo_verification.engine import Engine
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT
from sapo_verification.sampling.engine_terms import Terms
from sapo_verification.tasks.generators import derive, solution
from sapo_verification.types import AdmittedRollout, VerifiedRollout

GROUP: Final = 8
"""Number of completions of a group, as in the paper."""

WORDS: Final = 90
"""Number of words before an answer, so that a group has 4 KiB."""

LIMITS: Final = DialLimits()
"""Numbers of peers that a node dials, as in a real node."""

OnArrival = Callable[["SimulatedNode", "Arrival"], None]


@dataclass(frozen=True, slots=True)
class Group:
    """A rollout's message, with the island and the topic on which it is published."""

    island: int
    topic: str
    message: bytes

    @property
    def identity(self) -> bytes:
        """The message id."""
        return message_id(self.topic, self.message)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A rollout received by a node, and its engine's decision."""

    group: Group
    forwarder: str
    received: Received


class SimulatedNode:
    """One participant's node. A Sybil's node has no engine: it accepts all messages, forwards none, and
    publishes.

    Args:
        on_arrival: called with each rollout of another node, once it is admitted or refused.
        simulated: the simulated islands; a visit to any other island goes to one of these instead.
        share: share of the swarm's nodes that are simulated, and so of the peers of any island.
        nodes: all nodes of the simulation by peer id.
    """

    def __init__(
        self,
        participant: Participant,
        plan: ScalePlan,
        network: MeshNetwork,
        *,
        checker: LocalChecker,
        clock: Callable[[], float],
        simulated: tuple[int, ...],
        share: float,
        nodes: Mapping[str, SimulatedNode],
        on_arrival: OnArrival,
        on_bug: Callable[[Exception], None],
    ) -> None:
        self.participant = participant
        self._plan = plan
        self._network = network
        self._clock = clock
        self._simulated = simulated
        self._nodes = nodes
        self._on_arrival = on_arrival
        self._rng = random.Random(f"{plan.seed}/{participant.number}")
        self._slots: dict[int, int] = {}
        self._unintroduced = UnintroducedMessages()
        self._validators: dict[str, Validator] = {}
        self.homes = plan.island_map()
        self.joined: dict[int, float] = {}
        self.up_since_seconds = 0.0
        self.transport = MeshNode(
            network,
            participant.node.hex(),
            on_bug=on_bug,
            accepts_inbound=not participant.is_behind_nat,
            relays=not participant.is_sybil,
        )
        self.address = PeerAddress("dns", f"{participant.number}.example", 4001, self.transport.peer_id)
        self._chosen: set[str] = set()
        self._usual = sum(self._rng.random() < share for _ in range(LIMITS.usual_beside_sought))
        self._relays = Relays()
        self._seeking = SoughtPeers(LIMITS, VouchedPeers(), self._rng)
        self.engine: Engine | None = None
        if not participant.is_sybil:
            self.engine = Engine(
                plan.manifest,
                ":memory:",
                own=participant.account,
                check=checker.check,
                beacon_of=plan.beacon,
                key=participant.node_seed,
                terms=Terms(audit_share=0.0),
            )

    def start(self) -> None:
        """Start the node, and join its current islands."""
        self.up_since_seconds = self._clock()
        self.joined = {}
        self._chosen.clear()
        self.transport.start()
        self.follow()

    def stop(self) -> None:
        """Stop the node; its state is kept."""
        for island in self.joined:
            self._leave(island)
        self.joined = {}
        self.transport.stop()

    def dial_members(self, members: Mapping[int, Collection[SimulatedNode]]) -> None:
        """Dial members of the islands by the rules of a real node.

        Args:
            members: nodes by joined island. The node knows all of them that accept connections: address
                records are assumed to be found.
        """
        now_seconds = self._network.queue.now_seconds
        connected = frozenset(self.transport.peers)
        chosen = sorted(self._chosen & connected)
        known: dict[str, SimulatedNode] = {}
        islands: dict[str, set[int]] = {}
        for island, there in members.items():
            for one in there:
                if one.transport.accepts_inbound and one is not self:
                    known[one.transport.peer_id] = one
                    islands.setdefault(one.transport.peer_id, set()).add(island)
        sought = {each: SoughtFor(frozenset(on), each) for each, on in islands.items()}
        self._seeking.replace(
            sought,
            self._relays.shortages(self.joined.keys(), connected, now_seconds),
            self._relays.published_on(self.joined.keys(), now_seconds),
        )
        names = [
            each for each in sorted(known.keys() - connected) if not self._seeking.gave_way(each, now_seconds)
        ]
        self._rng.shuffle(names)
        candidates = [known[each].address for each in names]
        if (leaving := self._seeking.giving_way(candidates, chosen, now_seconds)) is not None:
            self.transport.disconnect(leaving)
            chosen.remove(leaving)
        self._seeking.missing(candidates, chosen, self._dial, now_seconds)
        self._dial_usual()
        self._chosen &= frozenset(self.transport.peers)

    def _dial_usual(self) -> None:
        """Dial peers of any island, up to the usual number."""
        chosen = sorted(self._chosen)
        missing = self._usual - (len(chosen) - self._seeking.beyond(chosen))
        if missing <= 0:
            return
        names = [name for name, one in self._nodes.items() if one.transport.accepts_inbound]
        for name in self._rng.sample(names, min(len(names), 2 * missing)):
            missing -= self._nodes[name] is not self and self._dial(self._nodes[name].address)
            if missing <= 0:
                return

    def _dial(self, address: PeerAddress) -> bool:
        if self.transport.connect(address.peer_id):
            self._chosen.add(address.peer_id)
            return True
        return False

    def home(self, epoch: int) -> int:
        """Return the account's home in an epoch."""
        found = self.homes.home(self.participant.account, epoch)
        assert found is not None  # every beacon is known
        return found

    def follow(self) -> None:
        """Join and leave islands as required at the current time."""
        due = self._due()
        if due == self.joined.keys():
            return
        if self.engine is not None:
            self.engine.carry(due)
        for island in sorted(self.joined.keys() - due):
            self._leave(island)
            del self.joined[island]
        for island in sorted(due - self.joined.keys()):
            rollouts = rollouts_topic(self._plan.manifest.swarm_id, island)
            for topic in self._topics(island):
                self._validators[topic] = self._validator(topic, island, is_rollout=topic == rollouts)
                self.transport.subscribe(
                    topic, self._validators[topic], author_of(self._plan.manifest.swarm_id)
                )
            self.joined[island] = self._clock()

    def introduce(self) -> None:
        """Publish the own certificate on the account's present and next home."""
        message = self.participant.certificate(self._plan.manifest)
        if self.engine is not None and not self.engine.certificates.accounts_of(self.participant.node):
            self.engine.certificates.admit(message, self._clock())
        homes = {self.home(epoch) for epoch in self.homes.carried_epochs(self._clock())}
        for island in sorted(homes & self.joined.keys()):
            self.transport.publish(certificates_topic(self._plan.manifest.swarm_id, island), message)

    def ask_for_certificates(self, peer: SimulatedNode) -> None:
        """Request a peer's certificates, as a node does at its start."""
        if self.engine is None or peer.engine is None:
            return
        answer = peer.engine.certificates.envelopes()
        self._take_certificates(peer.transport.peer_id, answer, asked_bytes=0)

    def make_group(self, epoch: int) -> Group | None:
        """Return a new group of this epoch; None if its island is not simulated."""
        island = self.home(epoch)
        if island not in self.joined:
            return None
        slot = self._slots[epoch] = self._slots.get(epoch, -1) + 1
        topic = rollouts_topic(self._plan.manifest.swarm_id, island)
        return Group(island, topic, self._message(epoch, slot))

    def publish(self, group: Group) -> None:
        """Publish an own group."""
        if self.engine is not None:
            self.engine.admit_own(group.message, self._clock())
            self._relays.published(group.island, self._network.queue.now_seconds)
        self.transport.publish(group.topic, group.message)

    def trust(self, others: list[Participant], epoch: int) -> None:
        """Record as many good groups as an account needs to have weight."""
        assert self.engine is not None
        for other in others:
            for _ in range(AUDITS_BEFORE_WEIGHT):
                self.engine.reputation.record_good(other.account, 0, epoch)

    def draw(self, epoch: int) -> tuple[VerifiedRollout, ...]:
        """Return the external groups of a batch."""
        assert self.engine is not None
        return trio.run(self.engine.draw, epoch, self._rng)

    def _due(self) -> frozenset[int]:
        found: set[int] = set()
        for epoch in self.homes.carried_epochs(self._clock()):
            home = self.home(epoch)
            if home not in self._simulated:
                continue
            visit = self.homes.visit(self.participant.node, self.participant.account, epoch)
            found |= {home, home if visit is None else self._nearest(visit, home)}
        return frozenset(found)

    def _nearest(self, visit: int, home: int) -> int:
        """Return the visited island; a simulated one in place of one that is not simulated."""
        if visit in self._simulated:
            return visit
        others = [island for island in self._simulated if island != home]
        return others[visit % len(others)] if others else home

    def _topics(self, island: int) -> tuple[str, ...]:
        swarm_id = self._plan.manifest.swarm_id
        names = (certificates_topic, rollouts_topic, equivocations_topic)
        return tuple(name(swarm_id, island) for name in names)

    def _leave(self, island: int) -> None:
        for topic in self._topics(island):
            self.transport.unsubscribe(topic)
            self._validators.pop(topic, None)

    def _validator(self, topic: str, island: int, *, is_rollout: bool) -> Validator:
        engine = self.engine
        if engine is None:
            return lambda message, forwarder: Verdict.ACCEPT

        def validate(message: bytes, forwarder: str) -> Verdict:
            now_seconds = self._clock()
            received = engine.receive(topic, message, now_seconds, source=forwarder)
            if received.unknown is not None:
                self._ask_for(received.unknown, forwarder)
                self._unintroduced.add(topic, message, forwarder, received.unknown, now_seconds)
            if isinstance(received.admitted, AdmittedRollout):
                author = received.admitted.rollout.node.hex()
                self._relays.came(island, author, forwarder, self._network.queue.now_seconds)
            if is_rollout:
                self._on_arrival(self, Arrival(Group(island, topic, message), forwarder, received))
            self._judge_waiting(received)
            return received.verdict

        return validate

    def _judge_waiting(self, received: Received) -> None:
        """Validate the messages again that waited for a certificate, as a node does."""
        if isinstance(received.admitted, Certificate):
            for waiting in self._unintroduced.take(received.admitted.node, self._clock()):
                validate = self._validators.get(waiting.topic)
                if validate and validate(waiting.message, waiting.forwarder) is Verdict.ACCEPT:
                    self.transport.relay(waiting.topic, waiting.message, waiting.forwarder)

    def _ask_for(self, node: NodeId, forwarder: str) -> None:
        """Request the certificate of an unknown author from the forwarder; it arrives a round trip later."""
        due = self._network.queue.now_seconds + 2 * self._network.latency_seconds(
            self.transport.peer_id, forwarder
        )
        self._network.queue.at(due, lambda: self._fetch(node, forwarder))

    def _fetch(self, node: NodeId, forwarder: str) -> None:
        peer = self._nodes.get(forwarder)
        if peer is not None and peer.engine is not None:
            answer = peer.engine.certificates.envelopes_of([node])
            self._take_certificates(forwarder, answer, asked_bytes=NodeId.SIZE)

    def _take_certificates(self, peer_id: str, answer: tuple[bytes, ...], *, asked_bytes: int) -> None:
        self.transport.count_request(peer_id, asked_bytes, sum(map(len, answer)))
        topic = certificates_topic(self._plan.manifest.swarm_id)
        for message in answer:
            assert self.engine is not None
            self._judge_waiting(
                self.engine.receive(topic, message, self._clock(), source=peer_id, live=False)
            )

    def _message(self, epoch: int, slot: int) -> bytes:
        manifest, rng = self._plan.manifest, self._rng
        family = rng.randrange(len(SUCCESS))
        spec = manifest.suite.families[family]
        task = assigned_task(
            manifest.swarm_id,
            self._plan.beacon(epoch),
            account=self.participant.account,
            family=family,
            slot=slot,
        )
        right = solution(spec, derive(spec, task.seed))
        share = SUCCESS[spec.name]
        texts = tuple(
            f"{self._words()} <answer>{right if rng.random() < share else 'none'}</answer>".encode()
            for _ in range(GROUP)
        )
        rollout = Rollout(
            self.participant.node,
            self.participant.account,
            epoch,
            slot=slot,
            family=family,
            completions=texts,
        )
        return seal(
            Kind.ROLLOUT, manifest.swarm_id, rollout.to_payload(), self.participant.node_seed
        ).to_bytes()

    def _words(self) -> str:
        return " ".join(f"{self._rng.getrandbits(16):04x}" for _ in range(WORDS))
