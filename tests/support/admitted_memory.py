"""Memory of an admitted group of others in a node, by the allocating line of code.

PYTHONPATH=$PYTHONPATH:tests python -m support.admitted_memory
"""

from __future__ import annotations

import gc
import random
import tracemalloc

import trio

from sapo_client.bench.harness import BenchHarness, open_harness
from sapo_client.bench.swarm import BenchAuthor

AUTHORS = [BenchAuthor(number) for number in range(1, 8)]
COMPLETIONS = 8
WORDS = 54
"""Words of nine bytes: eight answers have 4 KiB, as in support.namespaces.attack."""

FIRST, LAST = 100, 400
LINES = 12


def feed(harness: BenchHarness, rng: random.Random, first: int, last: int) -> None:
    """Hand in groups of several authors, which are admitted."""
    families = len(harness.swarm.manifest.suite.families)
    for number in range(first, last):
        answers = [
            " ".join(f"{rng.getrandbits(32):08x}" for _ in range(WORDS)).encode() for _ in range(COMPLETIONS)
        ]
        author = AUTHORS[number % len(AUTHORS)]
        message = harness.swarm.message(author, number % families, number // len(AUTHORS), answers)
        harness.gossip.validate_rollout(message, "a peer")


async def measure() -> None:
    """Print bytes per group, in all and of the largest lines."""
    rng = random.Random(1)
    async with open_harness(AUTHORS) as harness:
        feed(harness, rng, 0, FIRST)
        gc.collect()
        tracemalloc.start()
        before, taken_before = tracemalloc.take_snapshot(), tracemalloc.get_traced_memory()[0]
        feed(harness, rng, FIRST, LAST)
        gc.collect()
        taken, after = tracemalloc.get_traced_memory()[0], tracemalloc.take_snapshot()
        count = LAST - FIRST
        print(f"{(taken - taken_before) / count:,.0f} bytes a group")
        for line in after.compare_to(before, "lineno")[:LINES]:
            print(f"{line.size_diff / count:,.0f} {line.traceback}")


if __name__ == "__main__":
    trio.run(measure)
