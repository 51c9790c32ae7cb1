"""`python -m support.namespaces.settle --out DIR`: effect of a partition on the epochs of a ledger.

Needs what ``run`` needs. The chain is the embedded one, at a site of its own. Either all auditors are on one
side of the partition and the chain with them, or half of them are on each side and both reach the chain.
Writes ``report.md`` and ``report.json`` into DIR.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from support.namespaces.deliveries import first_heard, read_record
from support.namespaces.nodes import Nodes, Terms, start_all, swarm
from support.namespaces.report import HEARD_SECONDS, write
from support.namespaces.running import say, start_in

from sapo_client.observe.events import read_events
from sapo_client.testnet.node_record import read_record as read_node
from sapo_client.testnet.processes import wait_until
from sapo_protocol.epochs import epoch_at, epoch_start_seconds

PLACES: Final = {"together": ((0, 2, 4, 6), 0), "apart": ((0, 1, 2, 3), None)}
"""By name: numbers of the nodes that audit, and the side of the chain, None if both sides reach it."""

_REGISTERED_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Settled:
    """Results of the epochs.

    Attributes:
        cut: first and last epoch of which a part was in the partition.
        points: by final epoch, by node, its points; None where no quorum of the tallies explains the root.
        published: by epoch, by node, the groups that it published.
        sides: of the nodes.
        final: by final epoch, seconds from its end until a node wrote that it saw it on the ledger.
        heard: pairs that heard each other within a minute of the partition's end, of all pairs.
        lowest: score of an honest node right after the partition, and at the end.
    """

    auditors: tuple[int, ...]
    chain_side: int | None
    cut: tuple[int, int]
    points: Mapping[int, Mapping[int, int] | None]
    published: Mapping[int, Mapping[int, int]]
    sides: tuple[int | None, ...]
    final: Mapping[int, float]
    heard: tuple[int, int]
    lowest: tuple[float, float]

    def markdown(self) -> str:
        """Return the results as a page."""
        names = [f"node {n}, side {side}" for n, side in enumerate(self.sides)]
        heads = [name + (", audits" if n in self.auditors else "") for n, name in enumerate(names)]
        lines = [
            f"| epoch | final after | {' | '.join(heads)} |",
            "| --- " * (len(heads) + 2) + "|",
            *(self._row(epoch) for epoch in sorted(self.published)),
            "",
            "* Points of groups published. The partition was in parts of the epochs"
            f" {self.cut[0]} to {self.cut[1]}.",
            f"* {self.heard[0]} of {self.heard[1]} pairs heard each other within {HEARD_SECONDS:.0f} s of its"
            " end.",
            f"* Lowest score of an honest node: {self.lowest[0]:.1f} after it, {self.lowest[1]:.1f} at the"
            " end.",
        ]
        return "\n".join(lines) + "\n"

    def _row(self, epoch: int) -> str:
        points, published = self.points.get(epoch), self.published[epoch]
        after = f"{self.final[epoch]:.0f} s" if epoch in self.final else "not"
        told = (
            f"{'?' if points is None else points.get(n, 0)} of {published.get(n, 0)}"
            for n in range(len(self.sides))
        )
        is_cut = self.cut[0] <= epoch <= self.cut[1]
        return f"| {epoch}{', cut' if is_cut else ''} | {after} | {' | '.join(told)} |"


def settle(
    folder: Path, terms: Terms, cut_seconds: float, epochs_after: int, note: Callable[[str], None]
) -> Settled:
    """Run a swarm through a partition; return the results of its epochs."""
    with swarm(folder, terms) as nodes:
        note("the contracts are deployed")
        start_all(nodes)
        note("all nodes listen")
        _wait_until_registered(nodes)
        note("all nodes are registered")
        nodes.wait(1.5 * terms.epoch_seconds)
        began = nodes.world.cut()
        note("a partition begins")
        nodes.wait(cut_seconds)
        nodes.world.heal()
        healed = time.time()
        note("the partition has ended")
        nodes.wait(HEARD_SECONDS)
        lowest = nodes.lowest_score()
        nodes.wait(epochs_after * terms.epoch_seconds)
        cut = epoch_at(nodes.manifest, began), epoch_at(nodes.manifest, healed)
        return _settled(nodes, cut, healed, lowest)


def _settled(nodes: Nodes, cut: tuple[int, int], healed: float, lowest: float) -> Settled:
    assert nodes.chain is not None
    everybody = range(nodes.terms.nodes)
    records = [read_node(nodes.name(n), read_events(nodes.places[n].data.events)) for n in everybody]
    accounts = {place.identity.account.hex(): number for number, place in enumerate(nodes.places)}
    rows = nodes.chain.epochs(nodes.manifest, records)
    return Settled(
        auditors=nodes.terms.auditors,
        chain_side=nodes.terms.chain_side,
        cut=cut,
        points={
            row.epoch: None
            if row.points is None
            else {accounts[account]: points for account, points in row.points.items()}
            for row in rows
        },
        published=_published(nodes),
        sides=tuple(nodes.world.sites[number].side for number in everybody),
        final=_final(nodes),
        heard=_heard(nodes, healed),
        lowest=(lowest, nodes.lowest_score()),
    )


def _heard(nodes: Nodes, healed: float) -> tuple[int, int]:
    everybody = tuple(range(nodes.terms.nodes))
    records = {number: read_record(nodes.places[number].data.events) for number in everybody}
    after = first_heard(healed, everybody, records)
    return sum(seconds is not None and seconds <= HEARD_SECONDS for seconds in after.values()), len(after)


def _published(nodes: Nodes) -> dict[int, dict[int, int]]:
    """Return by epoch, by node, the number of groups that it published."""
    found: dict[int, dict[int, int]] = {}
    for number, place in enumerate(nodes.places):
        for event in read_events(place.data.events):
            match event:
                case {"event": "published", "epoch": int(epoch)}:
                    by_node = found.setdefault(epoch, {})
                    by_node[number] = by_node.get(number, 0) + 1
    return found


def _final(nodes: Nodes) -> dict[int, float]:
    """Return by epoch the seconds from its end until the first node saw it final."""
    found: dict[int, float] = {}
    for place in nodes.places:
        for event in read_events(place.data.events):
            match event:
                case {"event": "epoch_final", "epoch": int(epoch)}:
                    seen = datetime.fromisoformat(str(event["time"])).timestamp()
                    after = seen - epoch_start_seconds(nodes.manifest, epoch + 1)
                    found[epoch] = min(after, found.get(epoch, after))
    return found


def _wait_until_registered(nodes: Nodes) -> None:
    def are_registered() -> bool:
        nodes.require_running()
        return all(nodes.ask(number, "status")["ledger"]["registered"] for number in nodes.running)

    if not wait_until(are_registered, _REGISTERED_SECONDS):
        raise RuntimeError(f"not all nodes are registered after {_REGISTERED_SECONDS:.0f} s")


def main() -> int:
    """Run the program with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m support.namespaces.settle", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--auditors", choices=PLACES, default="together", help="where they are")
    parser.add_argument("--epoch-seconds", type=int, default=120)
    parser.add_argument("--cut", type=float, default=600.0, help="seconds of the partition")
    parser.add_argument("--epochs-after", type=int, default=3)
    parser.add_argument("--group-seconds", type=float, default=8.0)
    asked = parser.parse_args()
    folder = start_in(asked.out)
    if folder is None:
        return 1
    auditors, side = PLACES[asked.auditors]
    terms = Terms(
        nodes=8,
        guests=1,
        group_seconds=asked.group_seconds,
        epoch_seconds=asked.epoch_seconds,
        auditors=auditors,
        chain_side=side,
    )
    found = settle(folder, terms, asked.cut, asked.epochs_after, say)
    print(write(folder, found.markdown(), asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
