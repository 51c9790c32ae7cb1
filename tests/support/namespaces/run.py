"""`python -m support.namespaces.run --out DIR`: a swarm of real nodes under network faults.

Needs root, iproute2, nftables and TUN devices. The nodes are `sapo join` processes with ``policy_server`` as
policy and ``relay`` as network. Writes ``report.md`` and ``report.json`` into DIR.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.namespaces.deliveries import delivery, first_heard, read_record
from support.namespaces.faults import Durations, Scenario
from support.namespaces.nodes import Nodes, Terms, start_all, swarm
from support.namespaces.report import Result, markdown, refusals, silent_epochs, write
from support.namespaces.running import say, start_in

from sapo_client.errors import SapoError


def measure(folder: Path, terms: Terms, durations: Durations, note: Callable[[str], None]) -> Result:
    """Run the scenario in a new folder; return its results."""
    with swarm(folder, terms) as nodes:
        note(f"{terms.nodes} nodes start")
        start_all(nodes)
        note("all nodes listen")
        began, before = time.monotonic(), nodes.cpu_seconds()
        scenario = Scenario(nodes, durations, note)
        try:
            scenario.run()
        except (RuntimeError, SapoError) as error:  # results until then are reported
            note(f"cut short: {error}")
            scenario.ended = str(error)
        spent = nodes.cpu_seconds() - before
        return _result(nodes, scenario, spent / (time.monotonic() - began))


def _result(nodes: Nodes, scenario: Scenario, cpu_share: float) -> Result:
    records = {number: read_record(place.data.events) for number, place in enumerate(nodes.places)}
    return Result(
        ended=scenario.ended,
        deliveries=tuple(delivery(window, records) for window in scenario.windows),
        healed={}
        if scenario.healed_seconds is None
        else first_heard(scenario.healed_seconds, scenario.all_numbers, records),
        lowest=scenario.lowest,
        reachable=scenario.reachable,
        silent_epochs=silent_epochs(records, except_for=(0,)),  # the boot node was dead for some
        refused=refusals(records),
        relay=nodes.world.counts(),
        cpu_share=cpu_share,
        node_bytes=nodes.largest_bytes(),
    )


def main() -> int:
    """Run the program with the options of the command line."""
    usual, durations = Terms(), Durations()
    parser = argparse.ArgumentParser(prog="python -m support.namespaces.run", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--group-seconds", type=float, default=usual.group_seconds)
    parser.add_argument("--settle", type=float, default=durations.settle, help="seconds after a change")
    parser.add_argument("--count", type=float, default=durations.count, help="seconds of each part")
    parser.add_argument("--late", type=float, default=durations.late, help="seconds for the last groups")
    parser.add_argument("--cut", type=float, default=durations.cut, help="seconds of the partition")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    folder = start_in(asked.out)
    if folder is None:
        return 1
    terms = Terms(nodes=asked.nodes, group_seconds=asked.group_seconds, seed=asked.seed)
    chosen = Durations(asked.settle, asked.count, asked.late, asked.cut)
    result = measure(folder, terms, chosen, say)
    print(write(folder, markdown(result), result.to_json()))
    return 0 if result.ended is None else 1


if __name__ == "__main__":
    sys.exit(main())
