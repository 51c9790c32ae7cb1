"""The course of a simulation: who lives where, who comes and goes, who publishes and who draws batches."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sapo_client.lab.checker import LocalChecker
from sapo_client.lab.scale.batches import Drawer, SybilStanding
from sapo_client.lab.scale.deliveries import WAIT_SECONDS, Deliveries
from sapo_client.lab.scale.plan import Inhabitant, ScalePlan
from sapo_client.lab.scale.resident import Group, Hearing, Resident
from sapo_client.lab.scale.traces import LATE_SECONDS, Surroundings, Traces
from sapo_client.swarm.simulated.events import EventQueue
from sapo_client.swarm.simulated.memory import LinkConditions
from sapo_client.swarm.simulated.mesh import MeshNetwork
from sapo_protocol.epochs import epoch_at, epoch_start_seconds, overlap_seconds
from sapo_verification.types import AdmittedRollout

SETTLED_SECONDS: Final = 5.0
"""A node counts as a member of an island from then on: its mesh stands, certificates have come."""

ASKED_PEERS: Final = 3
"""Peers of an island that are asked for certificates when it is joined; some of them may be Sybils."""

TEND_SECONDS: Final = 1.0
DRAW_SECONDS: Final = 10.0
MAX_DRAWERS: Final = 12
"""Honest nodes whose batches are drawn and verified, evenly over the islands, the worst one first; what they
know of the attacker's accounts takes turns."""


class ScaleWorld:
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
        self.people = self._settle_people()
        self.simulated = self._choose_islands()
        self.residents: dict[str, Resident] = {}
        self._members: dict[int, set[Resident]] = defaultdict(set)
        self._away: set[str] = set()
        self.deliveries = Deliveries()
        self.traces = traces
        self.drawers: dict[str, Drawer] = {}
        self._sybils = frozenset(who.account for who in self.people if who.is_sybil)

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
        self._choose_drawers()
        self._repeat(TEND_SECONDS, self._tend)
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

    def members(self, island: int, *, settled: bool = False) -> list[Resident]:
        """Return the nodes that hear an island now; the settled ones for some seconds already."""
        before = self.clock() - (SETTLED_SECONDS if settled else 0.0)
        return [one for one in self._members[island] if one.joined.get(island, before + 1) <= before]

    def _settle_people(self) -> list[Inhabitant]:
        plan, rng = self.plan, self._rng
        sybils = set(rng.sample(range(plan.nodes), int(plan.sybils * plan.nodes)))
        hidden = set(rng.sample(range(plan.nodes), int(plan.nat * plan.nodes)))
        return [
            Inhabitant(plan.seed, number, is_sybil=number in sybils, is_behind_nat=number in hidden)
            for number in range(plan.nodes)
        ]

    def census(self, epoch: int | None = None) -> dict[int, list[Inhabitant]]:
        """Return who lives on each island of the whole swarm, in the first epoch if none is named."""
        epoch = self.plan.first_epoch if epoch is None else epoch
        found: dict[int, list[Inhabitant]] = {island: [] for island in range(self.plan.islands)}
        for who in self.people:
            home = self.homes.home(who.account, epoch)
            assert home is not None
            found[home].append(who)
        return found

    def _choose_islands(self) -> tuple[int, ...]:
        """Return all islands, or that with most Sybils, the largest, the smallest, and others by chance."""
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

    # Coming and going

    def _follow_epochs(self) -> None:
        """Let every node follow its islands, and bring up who has to carry a simulated one now."""
        near = [self.census(one) for one in self.homes.carried_epochs(self.clock())]
        expected = {who.number: who for census in near for island in self.simulated for who in census[island]}
        for who in expected.values():
            if who.node.hex() not in self.residents:
                self._add(who)
        for peer_id, resident in self.residents.items():
            if resident.who.number not in expected and resident.node.is_up:
                self._stop(peer_id)
            elif resident.who.number in expected and not resident.node.is_up and peer_id not in self._away:
                self._start(peer_id)
        for resident in self.residents.values():
            if resident.node.is_up:
                self._follow(resident)

    def _forget(self, epoch: int) -> None:
        """Drop what is too old in a new epoch."""
        for resident in self.residents.values():
            if resident.engine is not None:
                resident.engine.forget(epoch)

    def _follow(self, resident: Resident) -> None:
        before = set(resident.joined)
        resident.follow()
        for island in before - resident.joined.keys():
            self._members[island].discard(resident)
        for island in resident.joined.keys() - before:
            self._members[island].add(resident)
        if before != resident.joined.keys():
            new = tuple(sorted(resident.joined.keys() - before))
            self.queue.at(self.queue.now_seconds + 1.5, partial(self._introduce, resident, new))

    def _introduce(self, resident: Resident, new: tuple[int, ...]) -> None:
        """Connect to members of the islands, ask those of new ones who lives there, and be introduced."""
        if resident.node.is_up:
            self._connect(resident)
            self._ask_for_certificates(resident, new)
            resident.introduce()

    def _add(self, who: Inhabitant) -> None:
        resident = Resident(
            who,
            self.plan,
            self.network,
            checker=self.checker,
            clock=self.clock,
            simulated=self.simulated,
            share=len(self.simulated) / self.plan.islands,
            residents=self.residents,
            judged=self._judged,
            on_bug=self._on_bug,
        )
        self.residents[resident.node.peer_id] = resident
        self._start(resident.node.peer_id)

    def _start(self, peer_id: str) -> None:
        resident = self.residents[peer_id]
        self._away.discard(peer_id)
        resident.start()
        for island in resident.joined:
            self._members[island].add(resident)
        self.queue.at(self.queue.now_seconds + self._rng.uniform(0.2, 1.0), partial(self._arrive, resident))
        self._publish_later(resident, resident.up_since_seconds)

    def _arrive(self, resident: Resident) -> None:
        """Connect, ask some peers of each island for certificates, then publish the own one."""
        if not resident.node.is_up:
            return
        self._connect(resident)
        self._ask_for_certificates(resident, resident.joined)
        self.queue.at(self.queue.now_seconds + 1.5, partial(self._introduce, resident, ()))

    def _ask_for_certificates(self, resident: Resident, islands: Iterable[int]) -> None:
        """Ask a few peers of islands for certificates; a real node asks all."""
        for island in islands:
            peers = [one for one in self._members[island] if one.node.peer_id in resident.node.peers]
            peers.sort(key=lambda one: one.who.number)
            for peer in self._rng.sample(peers, min(ASKED_PEERS, len(peers))):
                resident.ask_for_certificates(peer)

    def _stop(self, peer_id: str) -> None:
        resident = self.residents[peer_id]
        for island in resident.joined:
            self._members[island].discard(resident)
        resident.stop()

    def _plan_departures(self, start_seconds: float) -> None:
        """Let a share of the nodes leave at some time of an epoch, and come back a quarter of it later."""
        length = self.plan.epoch_seconds
        numbers = self._rng.sample(range(self.plan.nodes), int(self.plan.churn * self.plan.nodes))
        for number in numbers:
            peer_id = self.people[number].node.hex()
            leaves = start_seconds + self._rng.uniform(0.0, 1.0) * length
            self.queue.at(leaves, partial(self._depart, peer_id))
            self.queue.at(leaves + length / 4, partial(self._return, peer_id))

    def _depart(self, peer_id: str) -> None:
        if peer_id in self.residents and self.residents[peer_id].node.is_up:
            self._away.add(peer_id)
            self._stop(peer_id)

    def _return(self, peer_id: str) -> None:
        if peer_id in self._away:
            self._start(peer_id)

    def _tend(self) -> None:
        """Let every node open connections where it has too few."""
        for resident in self.residents.values():
            if resident.node.is_up and self.clock() - resident.up_since_seconds > 1.0:
                self._connect(resident)

    def _connect(self, resident: Resident) -> None:
        """Let a node dial members of its islands where it has too few, or hears too little."""
        resident.seek({island: self._members[island] for island in resident.joined})

    # Publishing, hearing, drawing

    def _publish_later(self, resident: Resident, life: float) -> None:
        wait = self._rng.expovariate(self.plan.groups_per_second)
        soon = max(wait, SETTLED_SECONDS) if self.clock() - life < SETTLED_SECONDS else wait
        self.queue.at(self.queue.now_seconds + soon, partial(self._publish, resident, life))

    def _publish(self, resident: Resident, life: float) -> None:
        if not resident.node.is_up or resident.up_since_seconds != life:
            return
        self._publish_later(resident, life)
        group = resident.make_group(epoch_at(self.plan.manifest, self.clock()))
        if group is None:
            return
        if not resident.who.is_sybil:
            self._expect(group, resident)
        resident.publish(group)

    def _expect(self, group: Group, author: Resident) -> None:
        """Expect a group at the honest nodes of its island that have settled there."""
        members = self.members(group.island, settled=True)
        expected = [one for one in members if not one.who.is_sybil and one is not author]
        now_seconds, name = self.queue.now_seconds, author.node.peer_id
        around = {one.node.peer_id: self._surroundings(one, group) for one in expected}
        self.traces.begin(group.identity, name, now_seconds, around)
        self.deliveries.sent(group.identity, group.island, set(around), now_seconds)
        judge = partial(self._judge, group.identity, group.island, now_seconds)
        self.queue.at(now_seconds + WAIT_SECONDS, judge)

    def _surroundings(self, resident: Resident, group: Group) -> Surroundings:
        honest = {one for one in resident.node.peers if not self.residents[one].who.is_sybil}
        return Surroundings(
            sum(group.island in self.residents[one].joined for one in honest),
            sum(one in honest for one in resident.node.mesh_of(group.topic)),
            self.clock() - resident.joined[group.island],
        )

    def _judge(self, identity: bytes, island: int, sent_seconds: float) -> None:
        since = self.begin_seconds + sent_seconds
        still = {one.node.peer_id for one in self.members(island) if one.joined[island] <= since}
        judged = self.deliveries.close(identity, still)
        late = [node for node, delay in judged.delays.items() if delay > LATE_SECONDS]
        self.traces.end(identity, judged.missed, late)

    def _judged(self, resident: Resident, arrival: Hearing) -> None:
        identity, node, now_seconds = arrival.group.identity, resident.node.peer_id, self.queue.now_seconds
        if arrival.received.admitted is not None:
            self.traces.admitted(identity, node, arrival.forwarder, now_seconds)
            self.deliveries.admitted(identity, node, now_seconds)
            self._tell_drawer(node, arrival)
        elif arrival.received.rule is not None:
            self.traces.refused(identity, node, arrival.received.rule.name.lower())

    def _tell_drawer(self, node: str, arrival: Hearing) -> None:
        drawer, admitted = self.drawers.get(node), arrival.received.admitted
        if drawer is not None and isinstance(admitted, AdmittedRollout) and admitted.account in self._sybils:
            drawer.hear(admitted, arrival.forwarder)

    def _choose_drawers(self) -> None:
        """Choose who draws: eight nodes of the island with most Sybils, then some of each island."""
        census = self.census()
        islands = sorted(self.simulated, key=lambda one: -sybil_share(census[one]))
        homes = {one: [who for who in census[one] if not who.is_sybil] for one in islands}
        chosen = [who for round_ in zip(*(homes[one][:8] for one in islands), strict=False) for who in round_]
        worst = homes[islands[0]][:8]
        standings = list(SybilStanding)
        for number, who in enumerate(list(dict.fromkeys([*worst, *chosen]))[:MAX_DRAWERS]):
            resident = self.residents[who.node.hex()]
            island = next(one for one in islands if who in homes[one])
            drawer = Drawer(resident, island, standings[number % len(standings)])
            about = [other for island in resident.joined for other in census[island] if other is not who]
            drawer.learn(about, self.plan.first_epoch)
            self.drawers[resident.node.peer_id] = drawer

    def _draw(self) -> None:
        epoch = epoch_at(self.plan.manifest, self.clock())
        for drawer in self.drawers.values():
            if drawer.resident.node.is_up and self.queue.now_seconds > 2 * DRAW_SECONDS:
                drawer.draw(epoch, self._sybils)


def sybil_share(people: list[Inhabitant]) -> float:
    """Return the share of Sybils among the accounts of an island."""
    return sum(who.is_sybil for who in people) / len(people) if people else 0.0
