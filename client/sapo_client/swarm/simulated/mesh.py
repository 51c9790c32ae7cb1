"""A gossip mesh of bounded degree in virtual time, for simulations of many nodes in one process.

Intake, scores, rate limits and the pace and turns of sending are those of the real transport (but of control
messages, which are not limited here); what is simulated is what libp2p does: links with latency that lose
packets, an uplink that sends one message after another, a mesh of bounded degree in each topic, announcements
(IHAVE) of what did not come, and requests for what was announced (IWANT). Control messages about the mesh
itself (GRAFT and PRUNE) take no time, but their bytes are counted.

Libp2p runs over TCP: a lost packet comes again after a time-out, and what was sent to that peer after it
waits. Nothing vanishes but what has not left a node when a connection ends.

Nothing waits: all of it runs in one queue of events.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.fair_queue import newest_in_turns
from sapo_client.swarm.intake import Intake, message_id
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_score import PeerScores
from sapo_client.swarm.rate_limit import Meter
from sapo_client.swarm.requested import Requested
from sapo_client.swarm.simulated.copies import SentCopy, Traffic, Way
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.outbound import PacedOutbound
from sapo_client.swarm.supply import Supply
from sapo_client.swarm.transport import AuthorOf, BugReport, Validator
from sapo_client.swarm.upload_budget import MIN_NEIGHBOURS, UploadBudget

HEARTBEAT_SECONDS: Final = 1.0

_ANNOUNCED_WINDOWS: Final = 3
"""Heartbeats for which a message is announced."""

_WINDOWS: Final = 30
"""Heartbeats for which it is served on request, and announced to a peer that has just joined its topic."""

_MAX_ANNOUNCED: Final = 256

_BACK_OFF_SECONDS: Final = 60.0
"""Gossipsub's own, after a neighbour was removed from a mesh or refused."""

_FRAME_BYTES: Final = 130
"""Around one message or control list: topic name, lengths, encryption, TCP and IP headers."""

_ID_BYTES: Final = 34

_PACKET_BYTES: Final = 1400

_REPEAT_SECONDS: Final = 0.2
"""TCP's shortest time-out on Linux, on top of a round trip; it doubles until the packet gets through. A busy
connection repeats sooner, for later packets show what is missing; most links here are quiet."""

_MAX_REPEATS: Final = 6
"""The last of them is more than ten seconds after the packet."""


@dataclass(frozen=True, slots=True)
class MeshDegrees:
    """Neighbours that a node forwards to in a topic, as in `p2p/mesh.py`: wanted, fewest, most."""

    wanted: int = 6
    minimum: int = 4
    maximum: int = 9


@dataclass(frozen=True, slots=True)
class MeshMessage:
    """A message on its way; its copies share it."""

    topic: str
    data: bytes
    identity: bytes
    author: str | None = None


@dataclass(frozen=True)
class MeshNetwork:
    """State shared by the nodes of one mesh.

    Attributes:
        uplink_bits_per_second: of every node; copies of a message leave one after another.
        handling_seconds: between the arrival of a message and its forwarding.
        on_copy: called with each copy of a message when it is sent.
    """

    queue: EventQueue
    rng: random.Random
    conditions: LinkConditions
    degrees: MeshDegrees = MeshDegrees()
    limits: TransportLimits = field(default_factory=TransportLimits)
    uplink_bits_per_second: float = 10e6
    handling_seconds: float = 0.002
    on_copy: Callable[[SentCopy], None] = lambda _: None
    nodes: dict[str, MeshNode] = field(default_factory=dict)
    _latencies: dict[tuple[str, str], float] = field(default_factory=dict)

    def latency_seconds(self, one: str, other: str) -> float:
        """Return the latency between two nodes, the same in both directions and at all times."""
        link = (one, other) if one < other else (other, one)
        if (known := self._latencies.get(link)) is None:
            low, high = self.conditions.min_latency_seconds, self.conditions.max_latency_seconds
            known = self._latencies[link] = self.rng.uniform(low, high)
        return known

    def repeats(self, size_bytes: int) -> list[int]:
        """Draw how often each packet of a message is sent again."""
        share = self.conditions.loss_share
        if not share:
            return [0]
        packets = range(0, size_bytes, _PACKET_BYTES)
        return [
            next((n for n in range(_MAX_REPEATS) if self.rng.random() >= share), _MAX_REPEATS)
            for _ in packets
        ]


class MeshNode:
    """The gossip part of one node.

    Args:
        accepts_inbound: false behind a NAT: others cannot open connections to it.
        relays: false for a node that accepts messages and forwards none.
        limits: its own ones, for an attacker that keeps none.
    """

    def __init__(
        self,
        network: MeshNetwork,
        peer_id: str,
        *,
        on_bug: BugReport,
        accepts_inbound: bool = True,
        relays: bool = True,
        limits: TransportLimits | None = None,
    ) -> None:
        self.peer_id = peer_id
        self.accepts_inbound = accepts_inbound
        self.relays = relays
        self.traffic = Traffic()
        self._network = network
        limits = limits or network.limits
        self.counters = TransportCounters()
        self.discipline = Discipline(PeerScores(limits.score), self.counters, self.disconnect, limits.score)
        self._intake = Intake(limits, self.discipline, self.counters, on_bug)
        self._meter = Meter(limits)
        self._outbound = PacedOutbound(network.queue, limits)
        self._min_bytes = limits.min_rpc_bytes
        self._peers: dict[str, None] = {}
        self._ended_seconds: dict[str, float] = {}
        self._arrived_seconds: dict[str, float] = {}
        self._mesh: dict[str, dict[str, None]] = {}
        self._windows: deque[dict[bytes, MeshMessage]] = deque([{}], maxlen=_WINDOWS)
        self._supply: Supply[str] = Supply(network.rng)
        self._requested: Requested[str] = Requested(
            network.rng, asked=self._supply.asked, knows=self._intake.knows
        )
        degrees = network.degrees
        self._budget = UploadBudget(MIN_NEIGHBOURS, degrees.maximum, HEARTBEAT_SECONDS)
        self._backs_off_until: dict[tuple[str, str], float] = {}
        self._uplink_free_seconds = 0.0
        self._is_up = False
        self._life = 0

    @property
    def peers(self) -> tuple[str, ...]:
        """Return the ids of the connected peers."""
        return tuple(self._peers)

    @property
    def is_up(self) -> bool:
        """Whether the node runs."""
        return self._is_up

    def start(self) -> None:
        """Run until stopped; heartbeats begin within a second."""
        self._network.nodes[self.peer_id] = self
        self._is_up = True
        self._ended_seconds.clear()
        self._windows.clear()
        self._windows.append({})
        self._life += 1
        self._schedule_heartbeat(self._network.rng.uniform(0, HEARTBEAT_SECONDS), self._life)

    def stop(self) -> None:
        """End all connections."""
        self._is_up = False
        for peer_id in self.peers:
            self.disconnect(peer_id)
        self._network.nodes.pop(self.peer_id, None)

    def connect(self, peer_id: str) -> bool:
        """Open a connection; return whether both accept it and the other side can be reached."""
        other = self._network.nodes.get(peer_id)
        if other is None or not other.accepts_inbound or peer_id in self._peers or peer_id == self.peer_id:
            return False
        if not (self._may_add(peer_id) and other._may_add(self.peer_id)):
            return False
        self._peers[peer_id] = other._peers[self.peer_id] = None
        for topic in self._mesh:
            if topic in other._mesh:
                self._introduce(peer_id, topic)
                other._introduce(self.peer_id, topic)
        return True

    def disconnect(self, peer_id: str) -> None:
        """End a connection on both sides."""
        other = self._network.nodes.get(peer_id)
        self._drop(peer_id)
        if other is not None:
            other._drop(self.peer_id)

    def subscribe(self, topic: str, validator: Validator, author_of: AuthorOf | None = None) -> None:
        """Join a topic; its mesh forms at the next heartbeat."""
        self._intake.subscribe(topic, validator, author_of)
        self._mesh[topic] = {}
        for peer_id in self._peers:
            if self._joined(peer_id, topic):
                self._network.nodes[peer_id]._introduce(self.peer_id, topic)

    def unsubscribe(self, topic: str) -> None:
        """Leave a topic."""
        self._intake.unsubscribe(topic)
        for peer_id in self._mesh.pop(topic, {}):
            if (other := self._network.nodes.get(peer_id)) is not None:
                other._prune(self.peer_id, topic)

    def mesh_of(self, topic: str) -> tuple[str, ...]:
        """Return the peers to which messages of a topic are forwarded."""
        return tuple(self._mesh.get(topic, ()))

    def publish(self, topic: str, data: bytes) -> int:
        """Send an own message to every connected peer that joined its topic; return their number."""
        message = MeshMessage(topic, data, message_id(topic, data))
        self.counters.published += 1
        self._intake.remember_own(topic, data, self._network.queue.now_seconds)
        self._windows[0][message.identity] = message
        receivers = [peer_id for peer_id in self._peers if self._joined(peer_id, topic)]
        for peer_id in receivers:
            self._send(peer_id, message, Way.OWN)
        return len(receivers)

    def expect(self, quota_per_second: float) -> None:
        """Set the rates of each peer from the quotas of all accounts on the subscribed topics."""
        self._meter.expect(quota_per_second, self._network.queue.now_seconds)
        self._outbound.expect(quota_per_second)

    def relay(self, topic: str, data: bytes, came_from: str) -> None:
        """Forward a message that was ignored when it came, and is accepted now."""
        if self._intake.accept_late(topic, data, self._network.queue.now_seconds):
            self._accept(topic, data, message_id(topic, data), came_from)

    def count_request(self, peer_id: str, sent_bytes: int, received_bytes: int) -> None:
        """Count a request to a peer and its answer on both sides."""
        for node, sent, received in (
            (self, sent_bytes, received_bytes),
            (self._network.nodes.get(peer_id), received_bytes, sent_bytes),
        ):
            if node is not None:
                node.traffic.sent_bytes += sent + _FRAME_BYTES
                node.traffic.received_bytes += received + _FRAME_BYTES

    # Messages

    def _send(self, peer_id: str, message: MeshMessage, way: Way) -> None:
        """Queue a message for a peer; what does not fit is dropped."""
        send = partial(self._transmit, peer_id, message, way)
        turn = message.author, way is Way.OWN
        self.counters.dropped_before_sending += self._outbound.push(peer_id, len(message.data), send, *turn)

    def _transmit(self, peer_id: str, message: MeshMessage, way: Way) -> None:
        size = len(message.data) + _FRAME_BYTES
        self.traffic.sent_bytes += size
        self._budget.sent(size)
        queue = self._network.queue
        begin = max(queue.now_seconds, self._uplink_free_seconds)
        left = self._uplink_free_seconds = begin + size * 8 / self._network.uplink_bits_per_second
        due, repeats = self._arrival(peer_id, size, left)
        queue.at(due, lambda: self._arrive(peer_id, message, left))
        waited = begin - queue.now_seconds
        copy = SentCopy(
            self.peer_id,
            peer_id,
            message.identity,
            way,
            waited_seconds=waited,
            due_seconds=due,
            repeats=repeats,
        )
        self._network.on_copy(copy)

    def _arrival(self, peer_id: str, size: int, left_seconds: float) -> tuple[float, int]:
        """Return when what left for a peer arrives there, after all that was sent before, and its repeats."""
        latency = self._network.latency_seconds(self.peer_id, peer_id)
        repeats = self._network.repeats(size)
        self.traffic.sent_bytes += sum(repeats) * _PACKET_BYTES
        # the packets wait for their time-outs side by side: the one that is repeated most often is the last
        late = (2 * latency + _REPEAT_SECONDS) * (2 ** max(repeats) - 1)
        due = max(left_seconds + latency + late, self._arrived_seconds.get(peer_id, 0.0))
        self._arrived_seconds[peer_id] = due
        return due, sum(repeats)

    def _arrive(self, peer_id: str, message: MeshMessage, left_seconds: float) -> None:
        if (receiver := self._network.nodes.get(peer_id)) is not None:
            receiver._receive(self.peer_id, message, left_seconds)

    def _receive(self, sender: str, message: MeshMessage, left_seconds: float) -> None:
        """Take a copy; what left its sender before the connection ended still arrives."""
        if sender not in self._peers and self._ended_seconds.get(sender, -1.0) < left_seconds:
            return
        now_seconds = self._network.queue.now_seconds
        self.traffic.received_bytes += len(message.data) + _FRAME_BYTES
        self.traffic.copies += 1
        if not self._meter.take(sender, 1, max(len(message.data), self._min_bytes), now_seconds):
            self.discipline.note_flood(sender, now_seconds, proven=self._meter.proves_flood)
        elif self._intake.process(message.topic, message.data, sender, now_seconds):
            self._accept(message.topic, message.data, message.identity, sender)

    def _accept(self, topic: str, data: bytes, identity: bytes, sender: str) -> None:
        if self.relays:
            message = MeshMessage(topic, data, identity, self._intake.author_of(topic, data, sender))
            self._windows[0][message.identity] = message
            self._supply.came(message.topic, message.identity, sender)
            due = self._network.queue.now_seconds + self._network.handling_seconds
            self._network.queue.at(due, lambda: self._forward(message, sender))

    def _forward(self, message: MeshMessage, came_from: str) -> None:
        having = self._requested.announced_by(message.identity)
        for peer_id in self._mesh.get(message.topic, ()):
            if peer_id != came_from and peer_id not in having:
                self._send(peer_id, message, Way.FORWARDED)

    # Mesh

    def _schedule_heartbeat(self, wait_seconds: float, life: int) -> None:
        due = self._network.queue.now_seconds + wait_seconds
        self._network.queue.at(due, lambda: self._heartbeat(life))

    def _heartbeat(self, life: int) -> None:
        if not self._is_up or life != self._life:
            return
        maximum = self._budget.beat()
        wanted = min(self._network.degrees.wanted, maximum)
        for topic, mesh in self._mesh.items():
            others = [one for one in self._peers if one not in mesh and self._joined(one, topic)]
            if len(mesh) < min(self._network.degrees.minimum, wanted):
                self._fill(topic, others, wanted)
            elif len(mesh) > maximum:
                for peer_id in self._supply.least(topic, mesh)[: len(mesh) - wanted]:
                    self._leave(peer_id, topic)
            self._exchange(topic, others, wanted)
            if self.relays:
                new = [one for one in mesh if not self._supply.is_settled(topic, one)]
                self._announce(topic, [*(one for one in others if one not in mesh), *new])
        for peer_id, identities in self._requested.overdue(self._network.queue.now_seconds).items():
            self._ask(self._network.nodes[peer_id], identities)
        self._supply.keep_topics(self._mesh)
        self._supply.shift()
        self._windows.appendleft({})
        self._schedule_heartbeat(HEARTBEAT_SECONDS, life)

    def _fill(self, topic: str, others: list[str], wanted: int) -> None:
        """Take peers into the mesh of a topic, chosen by lot."""
        candidates = [one for one in others if self._may_graft(one, topic)]
        missing = wanted - len(self._mesh[topic])
        for peer_id in self._network.rng.sample(candidates, min(missing, len(candidates))):
            self._graft(peer_id, topic)

    def _exchange(self, topic: str, others: list[str], wanted: int) -> None:
        """Add a useful peer to a mesh that delivers too few messages."""
        mesh = self._mesh[topic]
        candidates = [one for one in others if one not in mesh and self._may_graft(one, topic)]
        if (found := self._supply.exchange(topic, mesh, candidates, wanted)) is None:
            return
        if found.prune is not None:
            self._leave(found.prune, topic)
        self._graft(found.graft, topic)

    def _graft(self, peer_id: str, topic: str) -> None:
        """Become a neighbour of a peer; one that has too many then leaves some at its next heartbeat."""
        self._count_control(peer_id, 0)
        other = self._network.nodes[peer_id]
        if other._may_graft(self.peer_id, topic):
            self._mesh[topic][peer_id] = other._mesh[topic][self.peer_id] = None
        else:
            other._count_control(self.peer_id, 0)
            self._back_off(peer_id, topic)

    def _leave(self, peer_id: str, topic: str) -> None:
        """Remove a neighbour from the mesh of a topic (PRUNE); neither side asks again for a minute."""
        self._count_control(peer_id, 0)
        self._mesh[topic].pop(peer_id, None)
        self._back_off(peer_id, topic)
        if (other := self._network.nodes.get(peer_id)) is not None:
            other._prune(self.peer_id, topic)
            other._back_off(self.peer_id, topic)

    def _back_off(self, peer_id: str, topic: str) -> None:
        self._backs_off_until[peer_id, topic] = self._network.queue.now_seconds + _BACK_OFF_SECONDS

    def _may_graft(self, peer_id: str, topic: str) -> bool:
        return self._backs_off_until.get((peer_id, topic), 0.0) <= self._network.queue.now_seconds

    def _announce(self, topic: str, others: Sequence[str]) -> None:
        """Announce the messages of the last heartbeats to peers outside the mesh, in turn (IHAVE)."""
        if identities := self._recent(topic, _ANNOUNCED_WINDOWS):
            for peer_id in self._supply.to_tell(topic, others, sparingly=self._budget.is_overdrawn):
                self._tell(peer_id, topic, identities)

    def _introduce(self, peer_id: str, topic: str) -> None:
        """Announce all that is held to a peer that has just joined a topic, at once."""
        if identities := self._recent(topic, _WINDOWS):
            self._tell(peer_id, topic, identities)

    def _recent(self, topic: str, windows: int) -> list[bytes]:
        """Return the ids of the last heartbeats, oldest first; of too many, each author's newest."""
        held = (one for window in list(self._windows)[windows - 1 :: -1] for one in window.values())
        recent = [one for one in held if one.topic == topic]
        return [one.identity for one in newest_in_turns(recent, lambda one: one.author, _MAX_ANNOUNCED)]

    def _tell(self, peer_id: str, topic: str, identities: list[bytes]) -> None:
        due = self._control(peer_id, len(identities))
        self._network.queue.at(due, partial(self._be_asked, peer_id, topic, identities))

    def _be_asked(self, peer_id: str, topic: str, identities: list[bytes]) -> None:
        """Let a peer request missing messages (IWANT), a round trip after the announcement."""
        other = self._network.nodes.get(peer_id)
        if other is None or self.peer_id not in other._peers or topic not in other._mesh:
            return
        now_seconds = self._network.queue.now_seconds
        if wanted := other._requested.offered(self.peer_id, topic, identities, now_seconds):
            other._ask(self, wanted)

    def _ask(self, other: MeshNode, wanted: list[bytes]) -> None:
        due = self._control(other.peer_id, len(wanted))
        self._network.queue.at(due, lambda: other._answer(self, wanted))

    def _answer(self, asker: MeshNode, wanted: Iterable[bytes]) -> None:
        """Send a peer what it asked for, as far as it is still held."""
        for identity in wanted:
            message = next((window[identity] for window in self._windows if identity in window), None)
            if message is not None and asker.peer_id in self._peers:
                asker.traffic.repaired += 1
                self._send(asker.peer_id, message, Way.REQUESTED)

    def _control(self, peer_id: str, identities: int) -> float:
        """Send a control message, ahead of what waits on the uplink; return when it arrives."""
        size = self._count_control(peer_id, identities)
        return self._arrival(peer_id, size, self._network.queue.now_seconds)[0]

    def _count_control(self, peer_id: str, identities: int) -> int:
        size = _FRAME_BYTES + identities * _ID_BYTES
        self.traffic.sent_bytes += size
        self._budget.sent(size)
        if (other := self._network.nodes.get(peer_id)) is not None:
            other.traffic.received_bytes += size
        return size

    def _joined(self, peer_id: str, topic: str) -> bool:
        other = self._network.nodes.get(peer_id)
        return other is not None and topic in other._mesh

    def _may_add(self, peer_id: str) -> bool:
        has_room = len(self._peers) < self._network.limits.max_connections
        return has_room and self.discipline.allows(peer_id, self._network.queue.now_seconds)

    def _prune(self, peer_id: str, topic: str) -> None:
        self._mesh.get(topic, {}).pop(peer_id, None)

    def _drop(self, peer_id: str) -> None:
        if peer_id in self._peers:
            del self._peers[peer_id]
            self._ended_seconds[peer_id] = self._network.queue.now_seconds
            self._arrived_seconds.pop(peer_id, None)
            self._outbound.left(peer_id)
            self._requested.left(peer_id)
        self._intake.forget_peer(peer_id)
        for mesh in self._mesh.values():
            mesh.pop(peer_id, None)
