"""Costs of a node at several sizes of a swarm, the checked signatures counted: one JSON object per size.

    PYTHONPATH=$PYTHONPATH:tests python -m support.scale_cost 10 100 1000 10000:12

A size is a number of nodes, or of nodes and of islands to simulate. Each runs in a process of its own, since
memory is the growth of the process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from dataclasses import asdict
from typing import Any

from sapo_client.lab.scale.goals import goals
from sapo_client.lab.scale.plan import ScalePlan, islands_that_follow
from sapo_client.lab.scale.report import simulate_scale
from sapo_protocol import ed25519, secp256k1


class CallCount:
    """A function, and the number of its calls."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        """Count and call."""
        self.calls += 1
        return self._function(*arguments)


def costs(size: str, seed: int) -> dict[str, Any]:
    """Return the report of a simulation of ``NODES`` or ``NODES:ISLANDS``, with signatures and load."""
    nodes, _, sample = size.partition(":")
    plan = ScalePlan(
        nodes=int(nodes),
        islands=islands_that_follow(int(nodes)),
        simulated=int(sample or 0),
        epoch_seconds=30,
        period_epochs=12,
        groups_per_second=0.083,
        seed=seed,
    )
    signatures, recoveries = CallCount(ed25519.verify_signed), CallCount(secp256k1.recover)
    ed25519.verify_signed, secp256k1.recover = signatures, recoveries  # type: ignore[assignment]
    load = os.getloadavg()[0]
    report = simulate_scale(plan, lambda _: None)
    rate = 1 / report.honest_simulated / report.virtual_seconds
    return {
        "size": size,
        "signatures": signatures.calls * rate,
        "recoveries": recoveries.calls * rate,
        "load": (load, os.getloadavg()[0]),
        "goals": [asdict(each) for each in goals(report)],
        **asdict(report),
    }


def main() -> None:
    """Print the costs of each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", metavar="NODES[:ISLANDS]")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(json.dumps(pool.apply(costs, (size, arguments.seed))), flush=True)


if __name__ == "__main__":
    main()
