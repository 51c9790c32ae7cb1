"""`python -m support.namespaces.siege --out DIR`: real nodes under a stranger's flood of rubbish.

First deliveries are counted in peace, then under siege; see ``besieger`` for what it does. Memory of every
node is read all the time. Needs what ``run`` needs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from support.namespaces.deliveries import Delivery, Window, delivery, read_record
from support.namespaces.nodes import Nodes, Terms, start_all, swarm
from support.namespaces.plan import NODE_PORT
from support.namespaces.report import rows, write
from support.namespaces.running import say, start_in

from sapo_client.testnet.processes import python, spawn, stop

_LOOK_SECONDS: Final = 5.0
_LATE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class SiegeResult:
    """What a siege came to.

    Attributes:
        deliveries: in peace and under siege.
        attacks: what the attacker did, by kind.
        bytes_by_tenth: largest resident memory of a node of its own process, in each tenth of the siege.
        lowest: the lowest score that a node had for another honest node at the end.
        cpu_share: processor time of all nodes under siege, as a share of one core.
    """

    deliveries: tuple[Delivery, ...]
    attacks: dict[str, int]
    bytes_by_tenth: tuple[int, ...]
    lowest: float
    cpu_share: float

    def markdown(self) -> str:
        """Return the results as a page."""
        done = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.attacks.items()))
        memory = ", ".join(f"{size / 2**20:.0f}" for size in self.bytes_by_tenth)
        facts = [
            f"* The attacker: {done}.",
            f"* Memory of the largest node, by tenths of the siege: {memory} MiB.",
            f"* Lowest score of an honest node: {self.lowest:.1f}.",
            f"* All nodes together took {self.cpu_share:.2f} of a core.",
        ]
        return "\n".join([*rows(self.deliveries, {}), "", *facts]) + "\n"


def besiege(
    folder: Path, terms: Terms, peace: float, seconds: float, note: Callable[[str], None]
) -> SiegeResult:
    """Run a swarm in peace, then under siege; return what it came to."""
    everybody = tuple(range(terms.nodes))
    with swarm(folder, terms) as nodes:
        start_all(nodes)
        note("all nodes listen")
        _look(nodes, peace / 2)
        began = time.time()
        _look(nodes, peace)
        windows = [Window("in peace", began, time.time(), everybody)]
        _look(nodes, _LATE_SECONDS)
        with _attack(folder, nodes) as log:
            note("the siege begins")
            began, before = time.time(), nodes.cpu_seconds()
            sizes = _look(nodes, seconds)
            windows.append(Window("under siege", began, time.time(), everybody))
            spent = (nodes.cpu_seconds() - before) / (time.time() - began)
            _look(nodes, _LATE_SECONDS)
            lowest = nodes.lowest_score()
        records = {number: read_record(place.data.events) for number, place in enumerate(nodes.places)}
        tenths = (sizes[len(sizes) * k // 10 : len(sizes) * (k + 1) // 10] for k in range(10))
        found = tuple(delivery(window, records) for window in windows)
        return SiegeResult(
            found, _last_counts(log), tuple(max(some, default=0) for some in tenths), lowest, spent
        )


def _last_counts(log: Path) -> dict[str, int]:
    """Return the attacker's last whole line; the node library's warnings are between them."""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    counts: dict[str, int] = json.loads(next(line for line in reversed(lines) if line.endswith("}")))
    return counts


@contextmanager
def _attack(folder: Path, nodes: Nodes) -> Iterator[Path]:
    """Let a stranger attack every node to which one can connect; yield its log."""
    addresses = [
        f"/ip4/{site.address}/tcp/{NODE_PORT}/p2p/{place.peer_id}"
        for site, place in zip(nodes.world.sites, nodes.places, strict=False)
        if not site.behind_router
    ]
    argv = python("support.namespaces.besieger", str(folder / "manifest.json"), *addresses)
    log = folder / "besieger.txt"
    attacker = spawn("besieger", nodes.world.command(nodes.terms.nodes, argv), folder=folder, log=log)
    try:
        yield log
    finally:
        stop([attacker], 0)


def _look(nodes: Nodes, seconds: float) -> list[int]:
    """Let a time pass in which all nodes must stay alive; return the largest node's memory over it."""
    sizes = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        nodes.require_running()
        sizes.append(nodes.largest_bytes())
        time.sleep(min(left, _LOOK_SECONDS))
    return sizes


def main() -> int:
    """Run what the command line asks for."""
    usual = Terms(nodes=8, guests=1, group_seconds=8.0)
    parser = argparse.ArgumentParser(prog="python -m support.namespaces.siege", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--group-seconds", type=float, default=usual.group_seconds)
    parser.add_argument("--peace", type=float, default=120.0, help="seconds before the siege")
    parser.add_argument("--seconds", type=float, default=1800.0, help="of the siege")
    asked = parser.parse_args()
    folder = start_in(asked.out)
    if folder is None:
        return 1
    terms = replace(usual, nodes=asked.nodes, group_seconds=asked.group_seconds)
    result = besiege(folder, terms, asked.peace, asked.seconds, say)
    print(write(folder, result.markdown(), asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
