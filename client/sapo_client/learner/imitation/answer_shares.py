"""How many of the demonstrations of a family may have the same answer.

Every demonstration is right, and yet a choice of them can teach something wrong: that an answer is more
frequent than it is. Authors choose what they show. So an answer may have the share of it that the accounts
show who show least of it, just more than half of all: a minority cannot raise that.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

LEAST_ANSWERS: Final = 4
"""A family is taught by texts with at least so many different answers, and none has more than one part in so
many; no family of the catalogue has fewer than that in the long run."""

USUAL_ANSWERS: Final = 8
"""One part in so many any answer may have, also one that few accounts show."""

_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9,]{,63}(?:\.[0-9]{1,64})?", re.ASCII)


def usual_form(answer: bytes) -> bytes:
    """Return one form for the spellings of a word or a number that scorers take for the same answer.

    Letters have no case, there is no white space, and a number is its value. Some scorers see no difference
    there, and whoever spells one answer in many ways would have as many shares of it.
    """
    text = "".join(answer.decode("utf-8", errors="replace").casefold().split())
    return (str(Fraction(text.replace(",", ""))) if _NUMBER.fullmatch(text) else text).encode("utf-8")


def quotas(shown: Sequence[tuple[bytes, bytes]]) -> Counter[bytes]:
    """Return how many texts of each answer may teach, the most that leave no answer more than its share.

    Args:
        shown: author and answer of each text of one family.
    """
    counts = Counter(answer for _, answer in shown)
    shares = _Shares(shown, len(counts))
    total = counts.total()
    while True:
        fitting = Counter({answer: shares.fitting(answer, count, total) for answer, count in counts.items()})
        if fitting.total() == total:
            return fitting
        total = fitting.total()  # no larger total fits, so what ends here is the largest


class _Shares:
    """The largest share of each answer, computed for those that have more than the least one.

    Args:
        shown: author and answer of each text.
        answers: number of different ones.
    """

    def __init__(self, shown: Sequence[tuple[bytes, bytes]], answers: int) -> None:
        # one answer fewer than there are, so that a rare one does not decide how often the others are shown
        self._least = Fraction(1, min(max(answers - 1, LEAST_ANSWERS), USUAL_ANSWERS))
        self._by_author: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
        for author, answer in shown:
            self._by_author[author][answer] += 1
        self._known: dict[bytes, Fraction] = {}

    def fitting(self, answer: bytes, count: int, total: int) -> int:
        """Return how many of an answer's texts are no more than its share of so many."""
        if count <= total * self._least:
            return count
        if answer not in self._known:
            self._known[answer] = min(max(self._least, self._of_most(answer)), Fraction(1, LEAST_ANSWERS))
        return min(count, int(total * self._known[answer]))

    def _of_most(self, answer: bytes) -> Fraction:
        """Return the mean of the answer's lowest shares, those of just more than half of the accounts."""
        shares = sorted(Fraction(counts[answer], counts.total()) for counts in self._by_author.values())
        most = shares[: len(shares) // 2 + 1]
        return sum(most, Fraction(0)) / len(most)
