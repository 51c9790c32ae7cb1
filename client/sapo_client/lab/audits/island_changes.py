"""How often the number of islands changes if it is derived from drawn accounts, each counted D times.

``python -m sapo_client.lab.audits.island_changes`` prints the table.
"""

import sys
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from sapo_protocol.constants import PAID_EPOCHS
from sapo_protocol.islands.count import island_count
from sapo_protocol.terms.islands import IslandTerms

EPOCHS = 2_000
FOUNDED = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=144, most_islands=1024)
"""Terms of a swarm with ten-minute epochs founded by `sapo swarm deploy --islands follow`."""


def changes(
    terms: IslandTerms, accounts: int, one_in: int, rng: np.random.Generator, *, epochs: int = EPOCHS
) -> float:
    """Return the share of epochs in which the number of islands changes, in a swarm of constant size.

    Every drawn account is paid; an epoch without a drawn account is not posted.
    """
    drawn = rng.binomial(accounts, 1 / one_in, size=epochs + PAID_EPOCHS)
    counts = [
        island_count(terms, [int(paid) for paid in drawn[last - PAID_EPOCHS : last] if paid], one_in)
        for last in range(PAID_EPOCHS, len(drawn))
    ]
    return sum(before != after for before, after in pairwise(counts)) / (len(counts) - 1)


def table(seed: int = 0, epochs: int = EPOCHS) -> Iterable[str]:
    """Yield the lines of the table, in Markdown: number of changes per hundred epochs."""
    draws = (1, 4, 16, 32)
    yield "| accounts | " + " | ".join(f"D = {one_in}" for one_in in draws) + " |"
    yield "| --- |" + " --- |" * len(draws)
    for accounts in (100, 250, 1_000, 10_000, 100_000):
        rng = np.random.default_rng(seed)
        cells = [f"{100 * changes(FOUNDED, accounts, one_in, rng, epochs=epochs):.1f}" for one_in in draws]
        yield f"| {accounts:,} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    for line in table():
        sys.stdout.write(line + "\n")
