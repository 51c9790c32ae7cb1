"""`python -m support.answer_quotas`: cost of answer shares for honest accounts, and gain of attackers.

Honest accounts show answers as they come, drawn from distributions such as families have; attackers show one
of them only. Printed are the part of the honest texts that may teach, and the share of the attackers' answer
among the first texts that do, as many as a step draws of a family. Accounts take turns.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from sapo_client.learner.imitation.answer_shares import in_shares

DRAWS: Final = 50
FIRST: Final = 10
PER_ACCOUNT: Final = (2, 5, 20, 100)
DISTRIBUTIONS: Final = {
    "7 answers, equally often": [1.0] * 7,
    "10 answers, equally often": [1.0] * 10,
    "100 answers, equally often": [1.0] * 100,
    "6 answers, each two thirds as often as the one before": [(2 / 3) ** place for place in range(6)],
}


def honest(
    accounts: int, each: int, weights: list[float], draw: random.Random
) -> Iterator[tuple[bytes, bytes]]:
    """Yield author and answer of each account's texts, the accounts in turns."""
    for _ in range(each):
        for account in range(accounts):
            (answer,) = draw.choices(range(len(weights)), weights)
            yield b"%d" % account, b"%d" % answer


def kept(accounts: int, each: int, weights: list[float]) -> float:
    """Return the part of the honest accounts' texts that may teach."""
    draw = random.Random(1)
    left = sum(len(list(in_shares(list(honest(accounts, each, weights, draw)), draw))) for _ in range(DRAWS))
    return left / (DRAWS * accounts * each)


def pushed(attackers: int, each: int) -> float:
    """Return the share of one of seven answers, of which three accounts show all and attackers one."""
    draw, total = random.Random(1), Counter[bytes]()
    for _ in range(DRAWS):
        shown = list(honest(3, each, [1.0] * 7, draw))
        shown = [(b"x%d" % place, b"0") for _ in range(each) for place in range(attackers)] + shown
        total.update(shown[place][1] for place in islice(in_shares(shown, draw), FIRST))
    return total[b"0"] / total.total()


def main() -> None:
    """Print two tables."""
    print(f"| honest texts that may teach, texts per account: | {' | '.join(map(str, PER_ACCOUNT))} |")
    print("| --- " * (len(PER_ACCOUNT) + 1) + "|")
    for name, weights in DISTRIBUTIONS.items():
        for accounts in (3, 8, 50):
            cells = " | ".join(f"{kept(accounts, each, weights):.2f}" for each in PER_ACCOUNT)
            print(f"| {name}; {accounts} accounts | {cells} |")
    print(f"\n| share of one of seven answers, texts per account: | {' | '.join(map(str, PER_ACCOUNT))} |")
    print("| --- " * (len(PER_ACCOUNT) + 1) + "|")
    for attackers in (0, 1, 2, 4):
        cells = " | ".join(f"{pushed(attackers, each):.3f}" for each in PER_ACCOUNT)
        print(f"| {attackers} attackers beside 3 honest accounts | {cells} |")


if __name__ == "__main__":
    main()
