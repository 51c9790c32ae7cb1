"""`python -m support.namespaces.attack --out DIR`: real nodes under the floods of an attacker.

Deliveries are counted before and during the attack; see ``attacker`` for its actions. Memory of every
node is sampled all the time. Needs what ``run`` needs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from support.namespaces.deliveries import Delivery, Window, delivery, read_record
from support.namespaces.nodes import Nodes, Terms, start_all, swarm
from support.namespaces.plan import NODE_PORT
from support.namespaces.report import counted, refusals, rows, write
from support.namespaces.running import say, start_in

from sapo_client.observe.events import read_events
from sapo_client.testnet.processes import python, spawn, stop

_SAMPLE_SECONDS: Final = 5.0
_SCORE_SECONDS: Final = 60.0
_LATE_SECONDS: Final = 30.0
_PARTS: Final = 3
"""Parts of the attack; memory is reported at its begin and at the end of each."""

_MESSAGES, _PEERS, _TIME = "messages: ", "peers: ", "milliseconds: "
"""Prefixes in the names of the attacker's counts of a kind of flood."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the nodes' memory.

    Attributes:
        seconds: since the attack began.
        resident: memory of each node with its children, in bytes.
    """

    seconds: float
    resident: dict[int, int]


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Results of an attack.

    Attributes:
        deliveries: before the attack, in each part of the attack, and in all of it.
        attacks: what the attacker did, by kind.
        samples: memory of the nodes over the attack, oldest first.
        attacked: names of the nodes that the attacker could connect to.
        lowest: the lowest score that a node had for another honest node in any reading.
        lost: connections of honest nodes to honest ones that ended during the attack.
        refused: messages and groups that nodes refused, by reason.
        cpu_shares: processor time of each node under attack, as a share of one core.
    """

    deliveries: tuple[Delivery, ...]
    attacks: dict[str, int]
    samples: tuple[Sample, ...]
    attacked: tuple[int, ...]
    lowest: float
    lost: int
    refused: dict[str, int]
    cpu_shares: dict[int, float]

    def markdown(self) -> str:
        """Return the results as a page."""
        facts = [
            f"* Lowest score of an honest node: {self.lowest:.1f}; connections between honest nodes that"
            f" ended: {self.lost}.",
            f"* Refused, all nodes together: {counted(self.refused)}.",
            f"* The attacker's connections: {counted(_connections(self.attacks))}.",
        ]
        tables = (rows(self.deliveries, {}), _floods(self.attacks), self._memory(), facts)
        return "\n\n".join("\n".join(table) for table in tables) + "\n"

    def _memory(self) -> list[str]:
        """Return each node's memory at the begin of the attack and at the end of each part, and its load."""
        last = self.samples[-1].seconds
        marks = [last * part / _PARTS for part in range(_PARTS + 1)]
        chosen = [min(self.samples, key=lambda each: abs(each.seconds - mark)) for mark in marks]
        heads = " | ".join(f"MiB after {sample.seconds / 60:.0f} min" for sample in chosen)
        lines = [f"| node | {heads} | most | share of a core |", "| --- " * (len(chosen) + 3) + "|"]
        for number, share in self.cpu_shares.items():
            sizes = [sample.resident[number] for sample in chosen]
            most = max(sample.resident[number] for sample in self.samples)
            cells = " | ".join(f"{size / 2**20:.0f}" for size in (*sizes, most))
            name = f"{number}, attacked" if number in self.attacked else str(number)
            lines.append(f"| {name} | {cells} | {share:.2f} |")
        return lines


def _floods(attacks: dict[str, int]) -> list[str]:
    """Return a table of the kinds of flood: how long their peers lasted, and the rates that they reached."""
    lines = [
        "| invalid messages, and how many a second were meant | peers | messages | seconds a peer |"
        " messages a second while connected |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in sorted(name.removeprefix(_PEERS) for name in attacks if name.startswith(_PEERS)):
        peers, messages = attacks[_PEERS + name], attacks.get(_MESSAGES + name, 0)
        seconds = attacks.get(_TIME + name, 0) / 1000
        rate = messages / seconds if seconds else 0
        lines.append(f"| {name} | {peers:,} | {messages:,} | {seconds / peers:.1f} | {rate:,.0f} |")
    return lines


def _connections(attacks: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in attacks.items() if ": " not in name}


def run_attacked(
    folder: Path, terms: Terms, before_seconds: float, seconds: float, note: Callable[[str], None]
) -> AttackResult:
    """Run a swarm without and then under attack; return the results."""
    everybody = tuple(range(terms.nodes))
    with swarm(folder, terms) as nodes:
        start_all(nodes)
        note("all nodes listen")
        nodes.wait(before_seconds / 2)
        began = time.time()
        nodes.wait(before_seconds)
        windows = [Window("before the attack", began, time.time(), everybody)]
        nodes.wait(_LATE_SECONDS)
        with _attack(folder, nodes) as log:
            note("the attack begins")
            began, before = time.time(), nodes.cpu_by_node()
            samples, lowest = _watch(nodes, seconds, note)
            ended = time.time()
            spent = nodes.cpu_by_node()
            nodes.wait(_LATE_SECONDS)
        records = {number: read_record(place.data.events) for number, place in enumerate(nodes.places)}
        part = (ended - began) / _PARTS
        windows += [
            Window(f"under attack, part {n + 1}", began + n * part, began + (n + 1) * part, everybody)
            for n in range(_PARTS)
        ]
        windows.append(Window("under attack", began, ended, everybody))
        return AttackResult(
            deliveries=tuple(delivery(window, records) for window in windows),
            attacks=_last_counts(log),
            samples=tuple(samples),
            attacked=nodes.reachable_numbers(),
            lowest=lowest,
            lost=_lost(nodes, began),
            refused=dict(refusals(records)),
            cpu_shares={n: (spent[n] - before[n]) / (ended - began) for n in everybody},
        )


def _lost(nodes: Nodes, since: float) -> int:
    """Return how many connections between the nodes ended since a Unix time, each seen from either end."""
    honest = {place.peer_id for place in nodes.places}
    return sum(
        event["event"] == "peer_lost"
        and event["peer_id"] in honest
        and datetime.fromisoformat(str(event["time"])).timestamp() >= since
        for place in nodes.places
        for event in read_events(place.data.events)
    )


def _last_counts(log: Path) -> dict[str, int]:
    """Return the attacker's last whole line; the node library's warnings are between them."""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    counts: dict[str, int] = json.loads(next(line for line in reversed(lines) if line.endswith("}")))
    return counts


@contextmanager
def _attack(folder: Path, nodes: Nodes) -> Iterator[Path]:
    """Run an attacker against every reachable node; yield its log."""
    addresses = [
        f"/ip4/{nodes.world.sites[number].address}/tcp/{NODE_PORT}/p2p/{nodes.places[number].peer_id}"
        for number in nodes.reachable_numbers()
    ]
    argv = python("support.namespaces.attacker", str(folder / "manifest.json"), *addresses)
    log = folder / "attacker.txt"
    attacker = spawn("attacker", nodes.world.command(nodes.terms.nodes, argv), folder=folder, log=log)
    try:
        yield log
    finally:
        stop([attacker], 0)


def _watch(nodes: Nodes, seconds: float, note: Callable[[str], None]) -> tuple[list[Sample], float]:
    """Wait for the end of the attack; return samples of memory, and the lowest score of an honest node."""
    samples: list[Sample] = []
    lowest = 0.0
    began = time.monotonic()
    due = began + _SCORE_SECONDS
    while (now := time.monotonic()) < began + seconds:
        nodes.require_running()
        samples.append(Sample(now - began, nodes.resident()))
        if now >= due:
            lowest = min(lowest, nodes.lowest_score())
            due += _SCORE_SECONDS
            note(f"largest node {max(samples[-1].resident.values()) / 2**20:.0f} MiB, lowest {lowest:.1f}")
        time.sleep(max(0.0, min(began + seconds - now, _SAMPLE_SECONDS)))
    samples.append(Sample(time.monotonic() - began, nodes.resident()))
    return samples, lowest


def main() -> int:
    """Run the program with the options of the command line."""
    usual = Terms(nodes=8, guests=1, group_seconds=8.0)
    parser = argparse.ArgumentParser(prog="python -m support.namespaces.attack", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--group-seconds", type=float, default=usual.group_seconds)
    parser.add_argument("--before", type=float, default=120.0, help="seconds before the attack")
    parser.add_argument("--seconds", type=float, default=1800.0, help="of the attack")
    asked = parser.parse_args()
    folder = start_in(asked.out)
    if folder is None:
        return 1
    terms = replace(usual, nodes=asked.nodes, group_seconds=asked.group_seconds)
    result = run_attacked(folder, terms, asked.before, asked.seconds, say)
    print(write(folder, result.markdown(), asdict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
