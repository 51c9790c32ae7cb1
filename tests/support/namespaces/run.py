"""`python -m support.namespaces.run --out DIR`: a swarm of real nodes under network faults.

Needs root, iproute2, nftables and TUN devices. The nodes are `sapo join` processes; see ``answers`` for what
stands in for their models, and ``relay`` for the network. Writes ``report.md`` and ``report.json`` into DIR.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.namespaces.deliveries import delivery, first_heard, read_record
from support.namespaces.nodes import Nodes, Terms, start_all, swarm
from support.namespaces.report import Result, markdown, refusals, silent_epochs, write
from support.namespaces.running import say, start_in
from support.namespaces.weather import Play, Weather

from sapo_client.errors import SapoError


def measure(folder: Path, terms: Terms, weather: Weather, note: Callable[[str], None]) -> Result:
    """Run the scenario in a new folder; return its results."""
    with swarm(folder, terms) as nodes:
        note(f"{terms.nodes} nodes start")
        start_all(nodes)
        note("all nodes listen")
        began, before = time.monotonic(), nodes.cpu_seconds()
        play = Play(nodes, weather, note)
        try:
            play.run()
        except (RuntimeError, SapoError) as error:  # results until then are reported
            note(f"cut short: {error}")
            play.ended = str(error)
        spent = nodes.cpu_seconds() - before
        return _result(nodes, play, spent / (time.monotonic() - began))


def _result(nodes: Nodes, play: Play, cpu_share: float) -> Result:
    records = {number: read_record(place.data.events) for number, place in enumerate(nodes.places)}
    return Result(
        ended=play.ended,
        deliveries=tuple(delivery(window, records) for window in play.windows),
        healed={}
        if play.healed_seconds is None
        else first_heard(play.healed_seconds, play.everybody, records),
        lowest=play.lowest,
        reachable=play.reachable,
        silent_epochs=silent_epochs(records, except_for=(0,)),  # the boot node was dead for some
        refused=refusals(records),
        relay=nodes.world.counts(),
        cpu_share=cpu_share,
        node_bytes=nodes.largest_bytes(),
    )


def main() -> int:
    """Run the program with the options of the command line."""
    usual, lasting = Terms(), Weather()
    parser = argparse.ArgumentParser(prog="python -m support.namespaces.run", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--nodes", type=int, default=usual.nodes)
    parser.add_argument("--group-seconds", type=float, default=usual.group_seconds)
    parser.add_argument("--settle", type=float, default=lasting.settle, help="seconds after a change")
    parser.add_argument("--count", type=float, default=lasting.count, help="seconds of each part")
    parser.add_argument("--late", type=float, default=lasting.late, help="seconds for the last groups")
    parser.add_argument("--cut", type=float, default=lasting.cut, help="seconds of the partition")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    folder = start_in(asked.out)
    if folder is None:
        return 1
    terms = Terms(nodes=asked.nodes, group_seconds=asked.group_seconds, seed=asked.seed)
    weather = Weather(asked.settle, asked.count, asked.late, asked.cut)
    result = measure(folder, terms, weather, say)
    print(write(folder, markdown(result), result.to_json()))
    return 0 if result.ended is None else 1


if __name__ == "__main__":
    sys.exit(main())
