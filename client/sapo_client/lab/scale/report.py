"""Results of a simulation of many nodes: figures for a table, for JSON and for a plot."""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sapo_client.lab.scale.batches import POLICY, BatchFigures, SybilStanding, batch_figures
from sapo_client.lab.scale.plan import ScalePlan
from sapo_client.lab.scale.simulation import ScaleSimulation, sybil_share
from sapo_client.lab.scale.traces import Cause

DELIVERY_SECONDS: Final = 0.00175
"""Processor time of libp2p for a new message with its copies (docs/adr/swarm-libp2p.md)."""


@dataclass(frozen=True, slots=True)
class IslandFigures:
    """One simulated island.

    Attributes:
        accounts: number of accounts whose home it is at the start of the simulation.
        sybils: the attacker's share of them.
        in_batches: share of Sybils' groups in batches of its honest nodes, own groups included; None if no
            batch was drawn there.
        of_others: the same without own groups.
        reached: share of the (honest group, honest node) pairs in which the node received the group.
    """

    island: int
    accounts: int
    sybils: float
    in_batches: float | None
    of_others: float | None
    reached: float


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """Figures of one simulation.

    Attributes:
        nodes_simulated: number of nodes that ran, honest ones and Sybils.
        honest_simulated: number of honest nodes that ran.
        mean_upload, worst_upload, mean_download, worst_download: bits per second of an honest node.
        new_messages: different messages per second at an honest node.
        copies: received copies of each message, the first one included.
        processor: processor seconds per node and second, the simulator itself included: an upper bound.
        transport_processor: estimate for libp2p, from its measured cost per message.
        memory_bytes: growth of this process per node.
        delivered: share of honest groups that reached 99 % of the honest nodes of their island.
        reached: share of all (group, node) pairs in which the node received the group.
        median_delay, late_delay: median and 99th percentile of the delays, in seconds.
        worst_score: lowest score that an honest node has at another honest node.
        faults: number of rejected messages, floods and disconnections at honest nodes.
        worst_share: Sybils' share of the batches of the island where it is highest, when all Sybils have
            earned trust.
        batches: the same by what sampling nodes know about Sybils, with the caps.
        missed: causes of undelivered (group, node) pairs.
        late: causes of deliveries that took more than two seconds.
        islands: figures of the simulated islands.
        delays: cumulative share of deliveries for each tenth of a second up to four seconds.
    """

    plan: ScalePlan
    nodes_simulated: int
    honest_simulated: int
    islands_simulated: int
    virtual_seconds: float
    wall_seconds: float
    mean_upload: float
    worst_upload: float
    mean_download: float
    worst_download: float
    new_messages: float
    copies: float
    repaired: float
    processor: float
    transport_processor: float
    memory_bytes: float
    groups: int
    delivered: float
    reached: float
    median_delay: float
    late_delay: float
    worst_score: float
    faults: int
    worst_share: float
    batches: tuple[BatchFigures, ...]
    missed: tuple[Cause, ...]
    late: tuple[Cause, ...]
    islands: tuple[IslandFigures, ...]
    delays: tuple[float, ...]


def simulate_scale(plan: ScalePlan, progress: Callable[[float], None]) -> ScaleReport:
    """Run a simulation and measure it; an error in a callback is raised."""
    bugs: list[Exception] = []
    before, wall, processor = _memory_bytes(), time.perf_counter(), time.process_time()
    simulation = ScaleSimulation(plan, bugs.append)
    simulation.run(progress)
    if bugs:
        raise bugs[0]
    processor_seconds = time.process_time() - processor
    return _report(
        simulation,
        wall_seconds=time.perf_counter() - wall,
        processor_seconds=processor_seconds,
        memory_bytes=_memory_bytes() - before,
    )


def _report(
    simulation: ScaleSimulation, *, wall_seconds: float, processor_seconds: float, memory_bytes: float
) -> ScaleReport:
    honest = [one for one in simulation.nodes.values() if not one.participant.is_sybil]
    length = simulation.length_seconds
    up = [8 * one.transport.traffic.sent_bytes / length for one in honest]
    down = [8 * one.transport.traffic.received_bytes / length for one in honest]
    new = sum(one.transport.counters.accepted for one in honest)
    copies = sum(one.transport.traffic.copies for one in honest)
    islands = tuple(_islands(simulation))
    drawn = [figures.in_batches for figures in islands if figures.in_batches is not None]
    deliveries = simulation.deliveries
    return ScaleReport(
        plan=simulation.plan,
        nodes_simulated=len(simulation.nodes),
        honest_simulated=len(honest),
        islands_simulated=len(simulation.simulated),
        virtual_seconds=length,
        wall_seconds=wall_seconds,
        mean_upload=sum(up) / len(up),
        worst_upload=max(up),
        mean_download=sum(down) / len(down),
        worst_download=max(down),
        new_messages=new / len(honest) / length,
        copies=copies / max(1, new),
        repaired=sum(one.transport.traffic.repaired for one in honest) / max(1, new),
        processor=processor_seconds / len(simulation.nodes) / length,
        transport_processor=new / len(honest) / length * DELIVERY_SECONDS,
        memory_bytes=memory_bytes / len(simulation.nodes),
        groups=deliveries.groups,
        delivered=deliveries.delivered / max(1, deliveries.groups),
        reached=deliveries.reached / max(1, deliveries.places),
        median_delay=deliveries.delay(0.5),
        late_delay=deliveries.delay(0.99),
        worst_score=_worst_score(simulation),
        faults=sum(_faults(one.transport.counters.snapshot()) for one in honest),
        worst_share=max(drawn, default=0.0),
        batches=tuple(_batches(simulation)),
        missed=simulation.traces.missed_causes(),
        late=simulation.traces.late_causes(),
        islands=islands,
        delays=_within(deliveries.delays),
    )


def _islands(simulation: ScaleSimulation) -> Iterable[IslandFigures]:
    census = simulation.census()
    for island in simulation.simulated:
        trusting = [
            one
            for one in simulation.sampling_nodes.values()
            if one.island == island and one.standing is SybilStanding.TRUSTED
        ]
        drawn = sum((one.drawn for one in trusting), Counter[bool]())
        own = POLICY.local_groups * sum(one.draws for one in trusting)
        places, reached = simulation.deliveries.by_island.get(island, (0, 0))
        yield IslandFigures(
            island,
            len(census[island]),
            sybil_share(census[island]),
            in_batches=drawn[True] / (drawn.total() + own) if own else None,
            of_others=drawn[True] / drawn.total() if drawn.total() else None,
            reached=reached / max(1, places),
        )


def _batches(simulation: ScaleSimulation) -> Iterable[BatchFigures]:
    sampling_nodes = list(simulation.sampling_nodes.values())
    found = (batch_figures(sampling_nodes, standing) for standing in SybilStanding)
    return (figures for figures in found if figures is not None)


def _worst_score(simulation: ScaleSimulation) -> float:
    honest = {peer_id: one for peer_id, one in simulation.nodes.items() if not one.participant.is_sybil}
    now_seconds = simulation.queue.now_seconds
    scores = (
        one.transport.discipline.score(peer, now_seconds)
        for one in honest.values()
        for peer in one.transport.peers
        if peer in honest
    )
    return min(scores, default=0.0)


def _faults(counters: dict[str, int]) -> int:
    return counters["rejected"] + counters["flood_pauses"] + counters["disconnects"]


def _within(delays: Iterable[float]) -> tuple[float, ...]:
    tenths = Counter(min(40, int(delay * 10)) for delay in delays)
    total, so_far, shares = max(1, tenths.total()), 0, []
    for tenth in range(41):
        so_far += tenths[tenth]
        shares.append(so_far / total)
    return tuple(shares)


def _memory_bytes() -> float:
    """Return the peak of this process's resident memory."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(size if sys.platform == "darwin" else size * 1024)
