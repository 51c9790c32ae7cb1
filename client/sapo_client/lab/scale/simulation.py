"""The simulation: homes of accounts, churn of nodes, publishing, and drawing of batches."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.scale.batches import SamplingNode, SybilStanding
from sapo_client.lab.scale.deliveries import WAIT_SECONDS, Deliveries
from sapo_client.lab.scale.node import Arrival, Group, SimulatedNode
from sapo_client.lab.scale.plan import Participant, ScalePlan
from sapo_client.lab.scale.traces import LATE_SECONDS, Connectivity, Traces
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.mesh import MeshNetwork
from sapo_protocol.epochs import epoch_at, epoch_start_seconds, overlap_seconds
from sapo_verification.types import AdmittedRollout

SETTLED_SECONDS: Final = 5.0
"""Time after which a node counts as a member of an island: it has a mesh and certificates."""

ASKED_PEERS: Final = 3
"""Number of an island's peers that a joining node asks for certificates; some may be Sybils."""

CONNECT_SECONDS: Final = 1.0
DRAW_SECONDS: Final = 10.0
MAX_SAMPLING_NODES: Final = 12
"""Maximum number of honest nodes whose batches are drawn and verified: evenly over the islands, the one with
most Sybils first. The values of ``SybilStanding`` are assigned to them in turn."""


class ScaleSimulation:
    """All nodes of a simulation in virtual time."""

    def __init__(self, plan: ScalePlan, on_bug: Callable[[Exception], None]) -> None:
        self.plan = plan
        self._on_bug = on_bug
        self._rng = random.Random(plan.seed)
        self.queue = EventQueue()
        self.begin_seconds = epoch_start_seconds(plan.manifest, plan.first_epoch)
        traces = Traces()
        self.network = MeshNetwork(
            self.queue,
            random.Random(f"{plan.seed}/network"),
            LinkConditions(0.02, 0.15, loss_share=plan.loss),
            on_copy=traces.sent,
        )
        self.checker = LocalChecker(plan.manifest.suite.families)
        self.homes = plan.island_map()
        self.participants = self._create_participants()
        self.simulated = self._choose_islands()
        self.nodes: dict[str, SimulatedNode] = {}
        self._members: dict[int, set[SimulatedNode]] = defaultdict(set)
        self._away: set[str] = set()
        self.deliveries = Deliveries()
        self.traces = traces
        self.sampling_nodes: dict[str, SamplingNode] = {}
        self._sybils = frozenset(
            participant.account for participant in self.participants if participant.is_sybil
        )

    @property
    def length_seconds(self) -> float:
        """Return the virtual time of the simulation."""
        return float(self.plan.epochs * self.plan.epoch_seconds)

    def clock(self) -> float:
        """Return virtual Unix time in seconds."""
        return self.begin_seconds + self.queue.now_seconds

    def run(self, progress: Callable[[float], None]) -> None:
        """Run to the end; ``progress`` takes virtual seconds."""
        self._follow_epochs()
        self._choose_sampling_nodes()
        self._repeat(CONNECT_SECONDS, self._maintain_connections)
        self._repeat(DRAW_SECONDS, self._draw)
        overlap = overlap_seconds(self.plan.manifest)
        for epoch in range(self.plan.first_epoch, self.plan.first_epoch + self.plan.epochs):
            start = epoch_start_seconds(self.plan.manifest, epoch) - self.begin_seconds
            self.queue.at(start, partial(self._forget, epoch))
            for turn in (start + overlap + 0.6, start + self.plan.epoch_seconds - overlap):
                self.queue.at(turn, self._follow_epochs)
            self._plan_departures(start)
        for second in range(int(self.length_seconds)):
            self.queue.run_until(float(second + 1))
            progress(self.queue.now_seconds)

    def members(self, island: int, *, settled: bool = False) -> list[SimulatedNode]:
        """Return the nodes subscribed to an island; with ``settled`` for at least ``SETTLED_SECONDS``."""
        before = self.clock() - (SETTLED_SECONDS if settled else 0.0)
        return [one for one in self._members[island] if one.joined.get(island, before + 1) <= before]

    def _create_participants(self) -> list[Participant]:
        plan, rng = self.plan, self._rng
        sybils = set(rng.sample(range(plan.nodes), int(plan.sybils * plan.nodes)))
        hidden = set(rng.sample(range(plan.nodes), int(plan.nat * plan.nodes)))
        return [
            Participant(plan.seed, number, is_sybil=number in sybils, is_behind_nat=number in hidden)
            for number in range(plan.nodes)
        ]

    def census(self, epoch: int | None = None) -> dict[int, list[Participant]]:
        """Return the participants by home, for all islands of the swarm; by default in the first epoch."""
        epoch = self.plan.first_epoch if epoch is None else epoch
        found: dict[int, list[Participant]] = {island: [] for island in range(self.plan.islands)}
        for participant in self.participants:
            home = self.homes.home(participant.account, epoch)
            assert home is not None
            found[home].append(participant)
        return found

    def _choose_islands(self) -> tuple[int, ...]:
        """Return all islands, or the one with most Sybils, the largest, the smallest and random others."""
        plan = self.plan
        if not 0 < plan.simulated < plan.islands:
            return tuple(range(plan.islands))
        census = self.census()
        by_sybils = max(census, key=lambda one: sybil_share(census[one]))
        by_size = sorted(census, key=lambda one: len(census[one]))
        first = dict.fromkeys((by_sybils, by_size[-1], by_size[0]))
        rest = [island for island in range(plan.islands) if island not in first]
        self._rng.shuffle(rest)
        return tuple(sorted([*first, *rest][: plan.simulated]))

    def _repeat(self, seconds: float, event: Callable[[], None]) -> None:
        def again() -> None:
            event()
            self.queue.at(self.queue.now_seconds + seconds, again)

        self.queue.at(self.queue.now_seconds + seconds, again)

    # Joining and leaving

    def _follow_epochs(self) -> None:
        """Update every node's islands, and start and stop nodes by whether they carry a simulated island."""
        near = [self.census(one) for one in self.homes.carried_epochs(self.clock())]
        expected = {
            participant.number: participant
            for census in near
            for island in self.simulated
            for participant in census[island]
        }
        for participant in expected.values():
            if participant.node.hex() not in self.nodes:
                self._add(participant)
        for peer_id, node in self.nodes.items():
            if node.participant.number not in expected and node.transport.is_up:
                self._stop(peer_id)
            elif (
                node.participant.number in expected and not node.transport.is_up and peer_id not in self._away
            ):
                self._start(peer_id)
        for node in self.nodes.values():
            if node.transport.is_up:
                self._follow(node)

    def _forget(self, epoch: int) -> None:
        """Remove data that is too old in a new epoch."""
        for node in self.nodes.values():
            if node.engine is not None:
                node.engine.forget(epoch)

    def _follow(self, node: SimulatedNode) -> None:
        before = set(node.joined)
        node.follow()
        for island in before - node.joined.keys():
            self._members[island].discard(node)
        for island in node.joined.keys() - before:
            self._members[island].add(node)
        if before != node.joined.keys():
            new = tuple(sorted(node.joined.keys() - before))
            self.queue.at(self.queue.now_seconds + 1.5, partial(self._introduce, node, new))

    def _introduce(self, node: SimulatedNode, new: tuple[int, ...]) -> None:
        """Connect to members of the islands, request certificates on new ones, and publish the own one."""
        if node.transport.is_up:
            self._connect(node)
            self._ask_for_certificates(node, new)
            node.introduce()

    def _add(self, participant: Participant) -> None:
        node = SimulatedNode(
            participant,
            self.plan,
            self.network,
            checker=self.checker,
            clock=self.clock,
            simulated=self.simulated,
            share=len(self.simulated) / self.plan.islands,
            nodes=self.nodes,
            on_arrival=self._on_arrival,
            on_bug=self._on_bug,
        )
        self.nodes[node.transport.peer_id] = node
        self._start(node.transport.peer_id)

    def _start(self, peer_id: str) -> None:
        node = self.nodes[peer_id]
        self._away.discard(peer_id)
        node.start()
        for island in node.joined:
            self._members[island].add(node)
        self.queue.at(self.queue.now_seconds + self._rng.uniform(0.2, 1.0), partial(self._arrive, node))
        self._publish_later(node, node.up_since_seconds)

    def _arrive(self, node: SimulatedNode) -> None:
        """Connect, request certificates from some peers of each island, then publish the own one."""
        if not node.transport.is_up:
            return
        self._connect(node)
        self._ask_for_certificates(node, node.joined)
        self.queue.at(self.queue.now_seconds + 1.5, partial(self._introduce, node, ()))

    def _ask_for_certificates(self, node: SimulatedNode, islands: Iterable[int]) -> None:
        """Request certificates from a few peers of each island; a real node asks all peers."""
        for island in islands:
            peers = [one for one in self._members[island] if one.transport.peer_id in node.transport.peers]
            peers.sort(key=lambda one: one.participant.number)
            for peer in self._rng.sample(peers, min(ASKED_PEERS, len(peers))):
                node.ask_for_certificates(peer)

    def _stop(self, peer_id: str) -> None:
        node = self.nodes[peer_id]
        for island in node.joined:
            self._members[island].discard(node)
        node.stop()

    def _plan_departures(self, start_seconds: float) -> None:
        """Let a share of the nodes leave at a random time of an epoch, and return a quarter epoch later."""
        length = self.plan.epoch_seconds
        numbers = self._rng.sample(range(self.plan.nodes), int(self.plan.churn * self.plan.nodes))
        for number in numbers:
            peer_id = self.participants[number].node.hex()
            leaves = start_seconds + self._rng.uniform(0.0, 1.0) * length
            self.queue.at(leaves, partial(self._depart, peer_id))
            self.queue.at(leaves + length / 4, partial(self._return, peer_id))

    def _depart(self, peer_id: str) -> None:
        if peer_id in self.nodes and self.nodes[peer_id].transport.is_up:
            self._away.add(peer_id)
            self._stop(peer_id)

    def _return(self, peer_id: str) -> None:
        if peer_id in self._away:
            self._start(peer_id)

    def _maintain_connections(self) -> None:
        """Let every node open missing connections."""
        for node in self.nodes.values():
            if node.transport.is_up and self.clock() - node.up_since_seconds > 1.0:
                self._connect(node)

    def _connect(self, node: SimulatedNode) -> None:
        """Let a node dial members of islands on which it has too few peers or receives too little."""
        node.dial_members({island: self._members[island] for island in node.joined})

    # Publishing, receiving, drawing

    def _publish_later(self, node: SimulatedNode, life: float) -> None:
        wait = self._rng.expovariate(self.plan.groups_per_second)
        soon = max(wait, SETTLED_SECONDS) if self.clock() - life < SETTLED_SECONDS else wait
        self.queue.at(self.queue.now_seconds + soon, partial(self._publish, node, life))

    def _publish(self, node: SimulatedNode, life: float) -> None:
        if not node.transport.is_up or node.up_since_seconds != life:
            return
        self._publish_later(node, life)
        group = node.make_group(epoch_at(self.plan.manifest, self.clock()))
        if group is None:
            return
        if not node.participant.is_sybil:
            self._expect(group, node)
        node.publish(group)

    def _expect(self, group: Group, author: SimulatedNode) -> None:
        """Record that the settled honest nodes of its island should receive a group."""
        members = self.members(group.island, settled=True)
        expected = [one for one in members if not one.participant.is_sybil and one is not author]
        now_seconds, name = self.queue.now_seconds, author.transport.peer_id
        connectivity = {one.transport.peer_id: self._connectivity(one, group) for one in expected}
        self.traces.begin(group.identity, name, now_seconds, connectivity)
        self.deliveries.sent(group.identity, group.island, set(connectivity), now_seconds)
        judge = partial(self._judge, group.identity, group.island, now_seconds)
        self.queue.at(now_seconds + WAIT_SECONDS, judge)

    def _connectivity(self, node: SimulatedNode, group: Group) -> Connectivity:
        honest = {one for one in node.transport.peers if not self.nodes[one].participant.is_sybil}
        return Connectivity(
            sum(group.island in self.nodes[one].joined for one in honest),
            sum(one in honest for one in node.transport.mesh_of(group.topic)),
            self.clock() - node.joined[group.island],
        )

    def _judge(self, identity: bytes, island: int, sent_seconds: float) -> None:
        since = self.begin_seconds + sent_seconds
        still = {one.transport.peer_id for one in self.members(island) if one.joined[island] <= since}
        judged = self.deliveries.close(identity, still)
        late = [peer_id for peer_id, delay in judged.delays.items() if delay > LATE_SECONDS]
        self.traces.end(identity, judged.missed, late)

    def _on_arrival(self, node: SimulatedNode, arrival: Arrival) -> None:
        identity, peer_id, now_seconds = (
            arrival.group.identity,
            node.transport.peer_id,
            self.queue.now_seconds,
        )
        if arrival.received.admitted is not None:
            self.traces.admitted(identity, peer_id, arrival.forwarder, now_seconds)
            self.deliveries.admitted(identity, peer_id, now_seconds)
            self._notify_sampling_node(peer_id, arrival)
        elif arrival.received.rule is not None:
            self.traces.refused(identity, peer_id, arrival.received.rule.name.lower())

    def _notify_sampling_node(self, peer_id: str, arrival: Arrival) -> None:
        sampling_node, admitted = self.sampling_nodes.get(peer_id), arrival.received.admitted
        if (
            sampling_node is not None
            and isinstance(admitted, AdmittedRollout)
            and admitted.account in self._sybils
        ):
            sampling_node.learn_network(admitted, arrival.forwarder)

    def _choose_sampling_nodes(self) -> None:
        """Choose the sampling nodes: eight of the island with most Sybils, then some of each island."""
        census = self.census()
        islands = sorted(self.simulated, key=lambda one: -sybil_share(census[one]))
        homes = {
            one: [participant for participant in census[one] if not participant.is_sybil] for one in islands
        }
        chosen = [
            participant
            for round_ in zip(*(homes[one][:8] for one in islands), strict=False)
            for participant in round_
        ]
        worst = homes[islands[0]][:8]
        standings = list(SybilStanding)
        for number, participant in enumerate(list(dict.fromkeys([*worst, *chosen]))[:MAX_SAMPLING_NODES]):
            node = self.nodes[participant.node.hex()]
            island = next(one for one in islands if participant in homes[one])
            sampling_node = SamplingNode(node, island, standings[number % len(standings)])
            about = [other for island in node.joined for other in census[island] if other is not participant]
            sampling_node.learn_trust(about, self.plan.first_epoch)
            self.sampling_nodes[node.transport.peer_id] = sampling_node

    def _draw(self) -> None:
        epoch = epoch_at(self.plan.manifest, self.clock())
        for sampling_node in self.sampling_nodes.values():
            if sampling_node.node.transport.is_up and self.queue.now_seconds > 2 * DRAW_SECONDS:
                sampling_node.draw(epoch, self._sybils)


def sybil_share(participants: list[Participant]) -> float:
    """Return the share of Sybils among the accounts of an island."""
    return (
        sum(participant.is_sybil for participant in participants) / len(participants) if participants else 0.0
    )
