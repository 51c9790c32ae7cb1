"""Sizes of islands, and the largest share of Sybils on one.

``python -m sapo_client.lab.scale.census`` writes the table of docs/scale.md.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

from sapo_protocol.epochs import beacon
from sapo_protocol.identifiers import Account, SwarmId
from sapo_protocol.islands.homes import home_island

SWARM: Final = SwarmId(bytes(32))
SYBILS: Final = 0.3
ROWS: Final = (
    (100, 8),
    (1_000, 64),
    (1_000, 8),
    (10_000, 512),
    (10_000, 64),
    (100_000, 4_096),
    (100_000, 1_024),
    (1_000_000, 32_768),
    (1_000_000, 8_192),
)
"""Accounts and islands: about 12 to 30 accounts on each, then four to ten times as many."""


def census(accounts: int, islands: int, rng: random.Random) -> tuple[int, int, int, float]:
    """Return the smallest, the median and the largest island, and the largest share of Sybils on one.

    A share counts from eight accounts on: on a smaller island a batch has room for few of them anyway.
    """
    drawn = beacon(SWARM, 1, b"")
    total: Counter[int] = Counter()
    sybils: Counter[int] = Counter()
    for _ in range(accounts):
        home = home_island(SWARM, drawn, Account(rng.randbytes(20)), islands)
        total[home] += 1
        sybils[home] += rng.random() < SYBILS
    sizes = sorted(total[island] for island in range(islands))
    worst = max(sybils[island] / total[island] for island in range(islands) if total[island] >= 8)
    return sizes[0], sizes[islands // 2], sizes[-1], worst


def table(rows: Iterable[tuple[int, int]], seed: int = 0) -> Iterable[str]:
    """Yield the lines of a table in Markdown."""
    yield "| accounts | islands | smallest, median, largest island | most Sybils on one |"
    yield "| --- | --- | --- | --- |"
    for accounts, islands in rows:
        smallest, median, largest, worst = census(accounts, islands, random.Random(seed))
        yield f"| {accounts:,} | {islands:,} | {smallest}, {median}, {largest} | {worst:.0%} |"


if __name__ == "__main__":
    for line in table(ROWS):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
