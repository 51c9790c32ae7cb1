"""An in-memory swarm with the interface of the real one, for tests and simulations.

Messages flood over the links that `connect` opened, as far as validators accept them; a node that has not
joined their topic drops them. All delays use
trio's clock, so a mock clock turns hours into milliseconds. Each link draws loss, latency and
duplication from a random generator of its own, seeded by hub seed, sender and receiver, and each node
processes its deliveries strictly by due time: the same seed gives the same deliveries, whatever order trio
runs its tasks in.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import trio

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.discipline import Discipline
from sapo_client.swarm.guard import ContainExceptions
from sapo_client.swarm.intake import Intake
from sapo_client.swarm.limits import TransportLimits
from sapo_client.swarm.peer_score import PeerScores, Severity
from sapo_client.swarm.rate_limit import Meter, SendingPace
from sapo_client.swarm.reachability import Reachability
from sapo_client.swarm.relays import NOTHING_SHORT, Shortage
from sapo_client.swarm.router.answers import RouterView
from sapo_client.swarm.transport import (
    AuthorOf,
    BugReport,
    Direction,
    FoundPeer,
    Handler,
    PeerInfo,
    TransportError,
    Validator,
)
from sapo_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from trio_typing import TaskStatus


@dataclass(frozen=True, slots=True)
class LinkConditions:
    """Loss, delay and duplication of links: shares are probabilities, latency is drawn uniformly.

    A latency range wider than the gap between two messages reorders them.
    """

    min_latency_seconds: float = 0.0
    max_latency_seconds: float = 0.0
    loss_share: float = 0.0
    duplicate_share: float = 0.0


@dataclass(frozen=True, order=True, slots=True)
class _Delivery:
    due_seconds: float
    sender: str
    number: int
    topic: str
    data: bytes


class MemoryHub:
    """Links between the nodes of one in-memory swarm."""

    def __init__(self, seed: int = 0, conditions: LinkConditions | None = None) -> None:
        self.conditions = conditions or LinkConditions()
        self._seed = seed
        self._nodes: dict[str, MemoryTransport] = {}
        self._links: dict[tuple[str, str], _Link] = {}
        self._side_of: dict[str, int] = {}

    def partition(self, *sides: Iterable[str]) -> None:
        """Cut every link between peer ids on different sides; peers not named form a side of their own."""
        self._side_of = {peer_id: number for number, side in enumerate(sides, 1) for peer_id in side}

    def heal(self) -> None:
        """End the partition."""
        self._side_of = {}

    def reachable(self, sender: str, receiver: str) -> bool:
        """Whether a message would get through: both run and are on one side."""
        together = self._side_of.get(sender, 0) == self._side_of.get(receiver, 0)
        return together and sender in self._nodes and receiver in self._nodes

    def enter(self, node: MemoryTransport) -> None:
        """Register a node that starts."""
        if node.peer_id in self._nodes:
            raise ValueError(f"{node.peer_id} already runs")
        self._nodes[node.peer_id] = node

    def leave(self, peer_id: str) -> None:
        """Remove a node that stops; its neighbours lose the connection."""
        del self._nodes[peer_id]
        for node in self._nodes.values():
            node.drop(peer_id)

    def node(self, peer_id: str) -> MemoryTransport | None:
        """Return the running node with that id."""
        return self._nodes.get(peer_id)

    def carry(self, sender: str, receiver: str, topic: str, data: bytes, wait_seconds: float = 0.0) -> None:
        """Send a message over the link, under its conditions, after some seconds."""
        if not self.reachable(sender, receiver):
            return
        for delivery in self._link(sender, receiver).draw(self.conditions, sender, topic, data):
            self._nodes[receiver].post(replace(delivery, due_seconds=delivery.due_seconds + wait_seconds))

    def latency_seconds(self, sender: str, receiver: str) -> float:
        """Return the latency of one request on that link."""
        return self._link(sender, receiver).latency_seconds(self.conditions)

    def _link(self, sender: str, receiver: str) -> _Link:
        name = f"{self._seed}/{sender}/{receiver}"
        return self._links.setdefault((sender, receiver), _Link(random.Random(name)))


class _Link:
    """One direction between two nodes, with its own random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0

    def latency_seconds(self, conditions: LinkConditions) -> float:
        return self._rng.uniform(conditions.min_latency_seconds, conditions.max_latency_seconds)

    def draw(self, conditions: LinkConditions, sender: str, topic: str, data: bytes) -> list[_Delivery]:
        lost = self._rng.random() < conditions.loss_share
        copies = 2 if self._rng.random() < conditions.duplicate_share else 1
        now_seconds = trio.current_time()
        deliveries = []
        for _ in range(0 if lost else copies):
            self._number += 1
            due_seconds = now_seconds + self.latency_seconds(conditions)
            deliveries.append(
                _Delivery(due_seconds=due_seconds, sender=sender, number=self._number, topic=topic, data=data)
            )
        return deliveries


@dataclass(frozen=True, slots=True)
class _Connection:
    since_seconds: float
    direction: Direction


class MemoryTransport:
    """Connection of one node to an in-memory swarm; same interface, validation and scores as over libp2p.

    Args:
        host: the IP address that its peers see.
    """

    def __init__(
        self,
        hub: MemoryHub,
        peer_id: str,
        *,
        on_bug: BugReport,
        bootstrap: tuple[str, ...] = (),
        limits: TransportLimits | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.peer_id = peer_id
        self.host = host
        self._hub = hub
        self._bootstrap = bootstrap
        self._limits = limits or TransportLimits()
        self._counters = TransportCounters()
        self._discipline = Discipline(
            PeerScores(self._limits.score), self._counters, self._drop_peer, self._limits.score
        )
        self._intake = Intake(self._limits, self._discipline, self._counters, on_bug)
        self._meter = Meter(self._limits)
        self._pace = SendingPace(self._limits)
        self._on_bug = on_bug
        self._handlers: dict[str, Handler] = {}
        self._connections: dict[str, _Connection] = {}
        self._deliveries: list[_Delivery] = []
        self._delivery_queued = trio.Event()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return one address that exists in memory only."""
        return (f"/memory/{self.peer_id}/p2p/{self.peer_id}",)

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Process deliveries by due time until cancelled."""
        self._hub.enter(self)
        try:
            for address in self._bootstrap:
                if self._hub.node(_peer_of(address)) is not None:  # one that is not up yet dials us
                    await self.connect(address)
            task_status.started()
            while True:
                await self._deliver_next()
        finally:
            self._hub.leave(self.peer_id)
            self._connections.clear()
            self._deliveries.clear()

    async def publish(self, topic: str, data: bytes) -> int:
        """Send a message; return the number of connected peers that a partition does not hide."""
        self._counters.published += 1
        self._intake.remember_own(topic, data, trio.current_time())
        return self._forward(topic, data, came_from=self.peer_id)

    def relay(self, topic: str, data: bytes, came_from: str) -> None:
        """Forward a message that was ignored when it came, and is accepted now."""
        if self._intake.accept_late(topic, data, trio.current_time()):
            self._forward(topic, data, came_from=came_from)

    def subscribe(self, topic: str, validator: Validator, author_of: AuthorOf | None = None) -> None:
        """Pass each new message on `topic` to `validator`; forward those it accepts."""
        self._intake.subscribe(topic, validator, author_of)

    def unsubscribe(self, topic: str) -> None:
        """Receive and forward a topic no longer."""
        self._intake.unsubscribe(topic)

    def peers(self) -> tuple[PeerInfo, ...]:
        """Return the connected peers, ordered by peer id."""
        return tuple(self._describe(peer_id) for peer_id in sorted(self._connections))

    def counters(self) -> Mapping[str, int]:
        """Return the counts by name."""
        return self._counters.snapshot()

    def score(self, peer_id: str) -> float:
        """Return the score of a peer, connected or not."""
        return self._discipline.scores.score(peer_id, trio.current_time())

    def blame(self, peer_id: str) -> None:
        """Count a message that no node forwards against the peer that sent it on request."""
        self._intake.blame(peer_id, trio.current_time())

    def rate(self, ratings: Mapping[str, float]) -> None:
        """Replace the application's ratings of peers."""
        self._discipline.rate(ratings, trio.current_time())

    def vouch(self, earned: Iterable[str], bonded: Iterable[str] = ()) -> None:
        """Do nothing: the links of this swarm are those that `connect` opened, without a limit."""

    def expect(self, quota_per_second: float, *, knows_all: bool = True) -> None:
        """Let each connection bring what follows from the quotas of all accounts that are heard here."""
        self._meter.expect(quota_per_second, trio.current_time(), knows_all=knows_all)
        self._pace.expect(quota_per_second, trio.current_time())

    def seek(
        self,
        found: Iterable[FoundPeer],
        short: Mapping[int, Shortage] = NOTHING_SHORT,
        own: Collection[int] = (),
    ) -> None:
        """Do nothing: nobody dials here."""

    def neighbours(self) -> None:
        """Return that no nodes are looked for: there is no local network."""

    def reached_at(self) -> tuple[str, ...]:
        """Return no address: nobody dials here."""
        return ()

    def router(self) -> RouterView | None:
        """Return that no router is asked: there is none."""
        return None

    def reachability(self) -> Reachability:
        """Return unknown: nobody dials here."""
        return Reachability.UNKNOWN

    def take_floods(self) -> Mapping[str, int]:
        """Return the number of floods since the last call, by peer id."""
        return self._discipline.take_floods()

    def serve(self, protocol: str, handler: Handler) -> None:
        """Answer requests on `protocol`."""
        self._handlers[protocol] = handler

    async def request(self, peer_id: str, protocol: str, payload: bytes, *, max_response_bytes: int) -> bytes:
        """Return the response of a connected peer, or raise `TransportError`."""
        with trio.move_on_after(self._limits.request_timeout_seconds):
            await trio.sleep(self._hub.latency_seconds(self.peer_id, peer_id))
            response = await self._answer_of(peer_id, protocol, payload)
            await trio.sleep(self._hub.latency_seconds(peer_id, self.peer_id))
            if len(response) > max_response_bytes:
                raise TransportError(
                    f"{peer_id} answered {len(response)} bytes, {max_response_bytes} allowed"
                )
            return response
        raise TransportError(f"{peer_id} did not answer in time")

    async def _answer_of(self, peer_id: str, protocol: str, payload: bytes) -> bytes:
        node = self._hub.node(peer_id)
        if node is None or peer_id not in self._connections or not self._hub.reachable(self.peer_id, peer_id):
            raise TransportError(f"not connected to {peer_id}")
        return await node.answer(self.peer_id, protocol, payload)

    async def answer(self, asker: str, protocol: str, payload: bytes) -> bytes:
        """Return this node's response; the asker gets a `TransportError` if the handler fails."""
        handler = self._handlers.get(protocol)
        if handler is None:
            raise TransportError(f"{self.peer_id} does not serve {protocol}")
        answers: list[bytes] = []
        with ContainExceptions(self._report_bug):
            try:
                answers.append(await handler(asker, payload))
            except ProtocolError:
                self._discipline.blame(asker, Severity.MID, trio.current_time())
        if not answers:
            raise TransportError(f"{self.peer_id} refused the request")
        self._counters.requests_served += 1
        return answers[0]

    def _report_bug(self, error: Exception) -> None:
        self._counters.bugs += 1
        self._on_bug(error)

    async def connect(self, multiaddr: str) -> None:
        """Open a link in both directions, or raise `TransportError`."""
        await trio.lowlevel.checkpoint()
        peer_id = _peer_of(multiaddr)
        other = self._hub.node(peer_id)
        if other is None or not self._hub.reachable(self.peer_id, peer_id):
            raise TransportError(f"no node at {multiaddr}")
        if not (self.accepts(peer_id) and other.accepts(self.peer_id)):
            raise TransportError(f"{peer_id} and this node do not want each other")
        self.add(peer_id, Direction.OUTBOUND)
        other.add(self.peer_id, Direction.INBOUND)

    def accepts(self, peer_id: str) -> bool:
        """Whether this node would connect with that peer now."""
        return peer_id != self.peer_id and self._discipline.allows(peer_id, trio.current_time())

    def add(self, peer_id: str, direction: Direction) -> None:
        """Add an open link."""
        self._connections.setdefault(peer_id, _Connection(trio.current_time(), direction))

    def drop(self, peer_id: str) -> None:
        """Remove a link that ended."""
        self._connections.pop(peer_id, None)
        self._intake.forget_peer(peer_id)

    def post(self, delivery: _Delivery) -> None:
        """Queue a delivery for this node."""
        heapq.heappush(self._deliveries, delivery)
        self._delivery_queued.set()

    async def _deliver_next(self) -> None:
        wait_seconds = (
            self._deliveries[0].due_seconds - trio.current_time() if self._deliveries else float("inf")
        )
        if wait_seconds > 0:
            self._delivery_queued = trio.Event()
            with trio.move_on_after(wait_seconds):
                await self._delivery_queued.wait()
            return  # a newer delivery may be due earlier
        await trio.lowlevel.checkpoint()
        self._process(heapq.heappop(self._deliveries))

    def _process(self, delivery: _Delivery) -> None:
        if delivery.sender not in self._connections:
            return
        now_seconds = trio.current_time()
        if not self._meter.take(delivery.sender, 1, len(delivery.data), now_seconds):
            self._discipline.note_flood(delivery.sender, now_seconds, proven=self._meter.proves_flood)
        elif self._intake.process(delivery.topic, delivery.data, delivery.sender, now_seconds):
            self._forward(delivery.topic, delivery.data, came_from=delivery.sender)

    def _forward(self, topic: str, data: bytes, *, came_from: str) -> int:
        receivers = [peer_id for peer_id in sorted(self._connections) if peer_id != came_from]
        for peer_id in receivers:
            self._send(peer_id, topic, data)
        return sum(self._hub.reachable(self.peer_id, peer_id) for peer_id in receivers)

    def _send(self, peer_id: str, topic: str, data: bytes) -> None:
        """Send a message at the peer's pace; drop it if as many wait as an outbound queue holds."""
        now_seconds = trio.current_time()
        wait_seconds = self._pace.seconds_until(peer_id, 1, len(data), now_seconds)
        if wait_seconds > self._pace.seconds_for(self._limits.outbound_queue):
            self._counters.dropped_before_sending += 1
            return
        self._pace.spend(peer_id, 1, len(data), now_seconds)
        self._hub.carry(self.peer_id, peer_id, topic, data, wait_seconds)

    def _drop_peer(self, peer_id: str) -> None:
        if peer_id not in self._connections:
            return
        self._counters.disconnects += 1
        self.drop(peer_id)
        other = self._hub.node(peer_id)
        if other is not None:
            other.drop(self.peer_id)

    def _describe(self, peer_id: str) -> PeerInfo:
        connection = self._connections[peer_id]
        return PeerInfo(
            peer_id=peer_id,
            addresses=(f"/memory/{peer_id}/p2p/{peer_id}",),
            connected_since_seconds=trio.current_time() - connection.since_seconds,
            direction=connection.direction,
            in_mesh=True,
            score=self.score(peer_id),
            received=self._intake.received_by_peer[peer_id],
            rejected=self._intake.rejected_by_peer[peer_id],
            remote_host=node.host if (node := self._hub.node(peer_id)) else None,
        )


def _peer_of(multiaddr: str) -> str:
    _, found, peer_id = multiaddr.rpartition("/p2p/")
    if not found or not peer_id:
        raise TransportError(f"{multiaddr} does not end in /p2p/ and a peer id")
    return peer_id
