"""Pay of a claim of which auditors check a random sample.

An account says how many groups it made, then some of them are drawn. Each drawn group that fails counts
against another one: points = claimed · max(0, drawn - 2 · failed) / drawn, times D where one account in D is
drawn. ``python -m sapo_client.lab.audits.claims`` writes the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sapo_client.lab.audits.costs import (
    AuditCosts,
    AuditWorld,
    committee,
    lot_size,
    receiving_all,
    sampling,
)

DRAWS: Final = 200_000
DAY_EPOCHS: Final = 144


@dataclass(frozen=True, slots=True)
class SampledClaim:
    """An account's claim of an epoch.

    Attributes:
        good: groups that a full count would pay.
        claimed: groups that it commits to.
        tries: number of draws of which a colluding block producer chooses the best.
    """

    name: str
    good: int
    claimed: int
    tries: int = 1


CLAIMS: Final = (
    SampledClaim("honest, checks its own groups: 1 in 100 fails", good=99, claimed=100),
    SampledClaim("honest, commits to all that it made: half fail", good=50, claimed=100),
    SampledClaim("claims a tenth more than it made", good=100, claimed=110),
    SampledClaim("claims twice what it made", good=100, claimed=200),
    SampledClaim("claims ten times what it made", good=50, claimed=500),
    SampledClaim("claims a tenth more, best of 16 draws", good=100, claimed=110, tries=16),
    SampledClaim("claims twice what it made, best of 16 draws", good=100, claimed=200, tries=16),
    SampledClaim("claims ten times what it made, best of 16 draws", good=50, claimed=500, tries=16),
)


def paid(
    claim: SampledClaim, samples: int, rng: np.random.Generator, *, penalty: int = 2, draws: int = DRAWS
) -> NDArray[np.float64]:
    """Return the points of a drawn account, before the multiplication by D.

    Args:
        penalty: number of groups deducted for each failed one, itself included.

    Returns:
        array of shape (draws,).
    """
    drawn = min(samples, claim.claimed)
    passed = rng.hypergeometric(claim.good, claim.claimed - claim.good, drawn, size=(draws, claim.tries))
    best = passed.max(axis=1)
    points: NDArray[np.float64] = np.floor(
        claim.claimed * np.maximum(0, drawn - penalty * (drawn - best)) / drawn
    )
    return points


def daily_error(points: NDArray[np.float64], one_in: int, epochs: int = DAY_EPOCHS) -> float:
    """Return the relative standard error of an account's points of a day, where one account in D is drawn."""
    mean, square = points.mean(), (points**2).mean()
    return float(np.sqrt((one_in * square - mean**2) / epochs) / mean)


def captured(auditors: int, liars: int, members: int) -> float:
    """Return the probability that liars determine the lower median of a committee drawn from all auditors."""
    needed = members // 2 + 1
    ways = sum(
        comb(liars, k) * comb(auditors - liars, members - k)
        for k in range(needed, min(liars, members) + 1)
        if members - k <= auditors - liars
    )
    return ways / comb(auditors, members)


def table(seed: int = 0, draws: int = DRAWS) -> Iterable[str]:
    """Yield the lines of the tables, in Markdown."""
    world, costs = AuditWorld(), AuditCosts()
    sizes, counts = (1, 2, 4, 8, 16), (100, 1_000, 10_000, 100_000)
    yield "| points, as a share of a full count's | " + " | ".join(f"m = {m}" for m in sizes) + " |"
    yield "| --- |" + " --- |" * len(sizes)
    for claim in CLAIMS:
        rng = np.random.default_rng(seed)
        cells = [f"{paid(claim, m, rng, draws=draws).mean() / claim.good:.2f}" for m in sizes]
        yield f"| {claim.name} | " + " | ".join(cells) + " |"
    rng = np.random.default_rng(seed)
    errors = [daily_error(paid(CLAIMS[0], m, rng, draws=draws), lot_size(10_000, m, world)) for m in sizes]
    yield (
        "| error of the first over a day, 10,000 accounts | " + " | ".join(f"{e:.1%}" for e in errors) + " |"
    )
    yield ""
    yield "| an auditor, Mbit/s and % of a core | " + " | ".join(f"{n:,}" for n in counts) + " |"
    yield "| --- |" + " --- |" * len(counts)
    loads = [("receives all", [receiving_all(n, world, costs) for n in counts])]
    for members in (4, 16, 64):
        chance = captured(world.auditors, (world.auditors - 1) // 3, members)
        name = f"committee of {members} of 64, captured by 21 with {chance:.0e}"
        loads.append((name, [committee(n, members, world, costs) for n in counts]))
    loads += [(f"sample, m = {m}", [sampling(n, m, world, costs) for n in counts]) for m in sizes]
    for name, row in loads:
        cells = [f"{load.bits / 1e6:.2f}, {load.processor:.1%}" for load in row]
        yield f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    for line in table():
        sys.stdout.write(line + "\n")
