"""How soon a canary finds that a policy has lost a family: simulated policies, by items in a check.

`PYTHONPATH=$PYTHONPATH:tests python -m support.canary_families` prints rows of docs/adr/learner-canary.md.
"""

import random
import sys
from statistics import median_low
from typing import Final

from sapo_client.node.training.canary_state import MAX_COMPARISONS, SPOILT_DOUBT
from sapo_client.node.training.family_evidence import Comparison, Losses

POLICIES: Final = 200
ALIKE: Final = 0.7
"""Part of the items on which policy and shadow are right or wrong together."""

LEVELS: Final = ((0.8, 0.0), (0.8, 0.2), (0.8, 0.3), (0.8, 0.4), (0.8, 0.8), (0.5, 0.0), (0.5, 0.1))
ITEMS: Final = (13, 2)
"""Of 64 in suites of five and of thirty families."""


def found_at(shadow: float, policy: float, items: int, seed: int) -> int | None:
    """Return the check at which a family counts as lost; None if it does not before the comparison ends."""
    rng, losses = random.Random(seed), Losses(1, SPOILT_DOUBT)
    for check in range(1, MAX_COMPARISONS + 1):
        both = won = lost = 0
        for _ in range(items):
            one = rng.random()
            two = one if rng.random() < ALIKE else rng.random()
            mine, its = one < policy, two < shadow
            both, won, lost = both + (mine and its), won + (mine and not its), lost + (its and not mine)
        losses.learn({0: Comparison(items, both, won, lost)})
        if losses.spoilt:
            return check
    return None


def main() -> None:
    """Print the table."""
    for shadow, policy in LEVELS:
        cells = []
        for items in ITEMS:
            found = [found_at(shadow, policy, items, seed) for seed in range(POLICIES)]
            checks = [check for check in found if check is not None]
            cells.append(f"{len(checks) / POLICIES:.0%}" + (f", {median_low(checks)}" if checks else ""))
        sys.stdout.write(f"| {shadow} and {policy} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
