"""What a simulation of many nodes has shown: figures for a table, for JSON and for a picture."""

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
from sapo_client.lab.scale.traces import Cause
from sapo_client.lab.scale.world import ScaleWorld, sybil_share

DELIVERY_SECONDS: Final = 0.00175
"""Processor time of libp2p for a new message with its copies (docs/adr/swarm-libp2p.md)."""


@dataclass(frozen=True, slots=True)
class IslandFigures:
    """One simulated island.

    Attributes:
        accounts: that live on it when the simulation begins.
        sybils: their share that is the attacker's.
        in_batches: share of Sybils' groups in batches of its honest nodes, whose other groups are own ones
            and those of honest accounts; none if nothing was drawn there.
        of_others: the same without the own ones.
        reached: share of pairs of an honest group and an honest node that was to get it.
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
        nodes_simulated: nodes that ran, honest and Sybils.
        mean_upload, worst_upload, mean_download, worst_download: bits per second of an honest node.
        new_messages: different messages per second at an honest node.
        copies: of each, with the first one.
        processor: processor seconds per node and second, the simulator itself included: an upper bound.
        transport_processor: what libp2p would add, from its measured cost per message.
        memory_bytes: growth of this process per node.
        delivered: share of honest groups that reached 99 % of the honest nodes of their island.
        reached: share of all (group, node) pairs.
        median_delay, late_delay: seconds that half and 99 % of the deliveries do not exceed.
        worst_score: lowest score of an honest node at an honest node.
        faults: messages rejected, floods and disconnections at honest nodes.
        worst_share: of Sybils in the batches of the island where it is highest, where all have earned trust.
        batches: the same by what drawing nodes know of Sybils, with the caps.
        missed: causes of pairs of a group and a node that did not get it.
        late: causes of deliveries that took more than two seconds.
        islands: the simulated ones.
        delays: the shares of deliveries within each tenth of a second up to four seconds.
    """

    plan: ScalePlan
    nodes_simulated: int
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
    """Run a simulation and measure it; a bug in a callback is raised."""
    bugs: list[Exception] = []
    before, wall, processor = _memory_bytes(), time.perf_counter(), time.process_time()
    world = ScaleWorld(plan, bugs.append)
    world.run(progress)
    if bugs:
        raise bugs[0]
    processor_seconds = time.process_time() - processor
    return _report(
        world,
        wall_seconds=time.perf_counter() - wall,
        processor_seconds=processor_seconds,
        memory_bytes=_memory_bytes() - before,
    )


def _report(
    world: ScaleWorld, *, wall_seconds: float, processor_seconds: float, memory_bytes: float
) -> ScaleReport:
    honest = [one for one in world.residents.values() if not one.who.is_sybil]
    length = world.length_seconds
    up = [8 * one.node.traffic.sent_bytes / length for one in honest]
    down = [8 * one.node.traffic.received_bytes / length for one in honest]
    new = sum(one.node.counters.accepted for one in honest)
    copies = sum(one.node.traffic.copies for one in honest)
    islands = tuple(_islands(world))
    drawn = [figures.in_batches for figures in islands if figures.in_batches is not None]
    deliveries = world.deliveries
    return ScaleReport(
        plan=world.plan,
        nodes_simulated=len(world.residents),
        islands_simulated=len(world.simulated),
        virtual_seconds=length,
        wall_seconds=wall_seconds,
        mean_upload=sum(up) / len(up),
        worst_upload=max(up),
        mean_download=sum(down) / len(down),
        worst_download=max(down),
        new_messages=new / len(honest) / length,
        copies=copies / max(1, new),
        repaired=sum(one.node.traffic.repaired for one in honest) / max(1, new),
        processor=processor_seconds / len(world.residents) / length,
        transport_processor=new / len(honest) / length * DELIVERY_SECONDS,
        memory_bytes=memory_bytes / len(world.residents),
        groups=deliveries.groups,
        delivered=deliveries.delivered / max(1, deliveries.groups),
        reached=deliveries.reached / max(1, deliveries.places),
        median_delay=deliveries.delay(0.5),
        late_delay=deliveries.delay(0.99),
        worst_score=_worst_score(world),
        faults=sum(_faults(one.node.counters.snapshot()) for one in honest),
        worst_share=max(drawn, default=0.0),
        batches=tuple(_batches(world)),
        missed=world.traces.missed_causes(),
        late=world.traces.late_causes(),
        islands=islands,
        delays=_within(deliveries.delays),
    )


def _islands(world: ScaleWorld) -> Iterable[IslandFigures]:
    census = world.census()
    for island in world.simulated:
        trusting = [
            one
            for one in world.drawers.values()
            if one.island == island and one.standing is SybilStanding.TRUSTED
        ]
        drawn = sum((one.drawn for one in trusting), Counter[bool]())
        own = POLICY.local_groups * sum(one.draws for one in trusting)
        places, reached = world.deliveries.by_island.get(island, (0, 0))
        yield IslandFigures(
            island,
            len(census[island]),
            sybil_share(census[island]),
            in_batches=drawn[True] / (drawn.total() + own) if own else None,
            of_others=drawn[True] / drawn.total() if drawn.total() else None,
            reached=reached / max(1, places),
        )


def _batches(world: ScaleWorld) -> Iterable[BatchFigures]:
    drawers = list(world.drawers.values())
    found = (batch_figures(drawers, standing) for standing in SybilStanding)
    return (figures for figures in found if figures is not None)


def _worst_score(world: ScaleWorld) -> float:
    honest = {peer_id: one for peer_id, one in world.residents.items() if not one.who.is_sybil}
    now_seconds = world.queue.now_seconds
    scores = (
        one.node.discipline.score(peer, now_seconds)
        for one in honest.values()
        for peer in one.node.peers
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
    """Return the largest size that this process has had."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(size if sys.platform == "darwin" else size * 1024)
