"""Limits on how many demonstrations of a family may have the same answer.

Every demonstration is right, and yet a biased selection teaches a wrong frequency of answers, and authors
select what they show. So the share of an answer is limited to the mean share among the half of the accounts
that show it least: together with this node they are a majority, so a minority cannot raise the limit.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

MIN_ANSWERS: Final = 4
"""Least number of different answers with which a family is trained, each with at most one part in so many;
every family of the catalogue has more in the long run."""

USUAL_ANSWERS: Final = 8
"""Any answer may have one part in so many, also one that few accounts show."""

_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9,]{,63}(?:\.[0-9]{1,64})?", re.ASCII)


@lru_cache(maxsize=8192)  # twice the texts of a buffer, all of which each draw looks at
def usual_form(answer: bytes) -> bytes:
    """Return one form for the spellings of a word or a number that scorers take for the same answer.

    Case and white space are removed, and a number is replaced by its value. Some scorers ignore these
    differences, so an author could otherwise get several shares for one answer by spelling it in several
    ways.
    """
    text = "".join(answer.decode("utf-8", errors="replace").casefold().split())
    return (str(Fraction(text.replace(",", ""))) if _NUMBER.fullmatch(text) else text).encode("utf-8")


def in_shares(shown: Sequence[tuple[bytes, bytes]], source: random.Random) -> Iterator[int]:
    """Yield the indices of texts to train on, so that no answer exceeds its share in any prefix.

    As many texts as possible are yielded, in the given order, except that texts with a frequent answer are
    delayed until others have come between them.

    Args:
        shown: author and answer of each text of one family; authors in turns.
        source: random generator, which decides how early the first text of a frequent answer comes.
    """
    shares = _Shares(shown)
    left = shares.quotas()
    waiting: list[tuple[int, bytes]] = []
    for place, (_, answer) in enumerate(shown):
        if left[answer] > 0:
            left[answer] -= 1
            waiting.append((place, answer))
    first = {answer: source.random() for answer in shares.frequent()}
    given: Counter[bytes] = Counter()

    def due(answer: bytes) -> float:
        """Return the total from which on the answer's next text is within its share."""
        return (given[answer] + first[answer]) / shares.of(answer) if answer in first else 0.0

    for number in range(1, len(waiting) + 1):
        chosen = next((n for n, (_, answer) in enumerate(waiting) if due(answer) <= number), None)
        if chosen is None:
            chosen = min(range(len(waiting)), key=lambda n: due(waiting[n][1]))
        place, answer = waiting.pop(chosen)
        given[answer] += 1
        yield place


class _Shares:
    """The largest share of each answer among texts of one family.

    Args:
        shown: author and answer of each text.
    """

    def __init__(self, shown: Sequence[tuple[bytes, bytes]]) -> None:
        self._counts = Counter(answer for _, answer in shown)
        self._by_author: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
        for author, answer in shown:
            self._by_author[author][answer] += 1
        # one answer fewer than there are, so that a rare one does not decide how often the others are shown
        self._usual = min(max(len(self._counts) - 1, MIN_ANSWERS), USUAL_ANSWERS)
        self._known: dict[bytes, Fraction] = {}

    def of(self, answer: bytes) -> Fraction:
        """Return an answer's largest share."""
        if answer not in self._known:
            self._known[answer] = min(
                max(Fraction(1, self._usual), self._of_most(answer)), Fraction(1, MIN_ANSWERS)
            )
        return self._known[answer]

    def quotas(self) -> Counter[bytes]:
        """Return the largest numbers of texts by answer such that none exceeds its share."""
        total = self._counts.total()
        while True:
            fitting = Counter(
                {answer: self._fitting(count, answer, total) for answer, count in self._counts.items()}
            )
            if fitting.total() == total:
                return fitting
            total = fitting.total()  # no larger total fits

    def frequent(self) -> list[bytes]:
        """Return the answers that exceed their shares, with all accounts weighted equally."""
        means: defaultdict[bytes, float] = defaultdict(float)
        for counts in self._by_author.values():
            shown = counts.total() * len(self._by_author)
            for answer, count in counts.items():
                means[answer] += count / shown
        return [answer for answer, mean in means.items() if mean * self._usual > 1 and mean > self.of(answer)]

    def _fitting(self, count: int, answer: bytes, total: int) -> int:
        """Return how many of an answer's texts are within its share of ``total``."""
        return count if count * self._usual <= total else min(count, int(total * self.of(answer)))

    def _of_most(self, answer: bytes) -> Fraction:
        """Return the mean share of the answer among the half of the authors that show it least."""
        shares = sorted(Fraction(counts[answer], counts.total()) for counts in self._by_author.values())
        half = shares[: (len(shares) + 1) // 2]
        return sum(half, Fraction(0)) / len(half)
