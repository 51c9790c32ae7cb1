"""How many of the demonstrations of a family may have the same answer.

Every demonstration is right, and yet a choice of them can teach something wrong: that an answer is more
frequent than it is. Authors choose what they show. So an answer may have the share of it that the accounts
show who show least of it, half of the others: together with this node they are a majority, and a minority of
all cannot raise that.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

LEAST_ANSWERS: Final = 4
"""A family is taught by texts with at least so many different answers, and none has more than one part in so
many; no family of the catalogue has fewer than that in the long run."""

USUAL_ANSWERS: Final = 8
"""One part in so many any answer may have, also one that few accounts show."""

_NUMBER: Final = re.compile(r"[+-]?[0-9][0-9,]{,63}(?:\.[0-9]{1,64})?", re.ASCII)


@lru_cache(maxsize=8192)  # twice the texts of a buffer, all of which each draw looks at
def usual_form(answer: bytes) -> bytes:
    """Return one form for the spellings of a word or a number that scorers take for the same answer.

    Letters have no case, there is no white space, and a number is its value. Some scorers see no difference
    there, and whoever spells one answer in many ways would have as many shares of it.
    """
    text = "".join(answer.decode("utf-8", errors="replace").casefold().split())
    return (str(Fraction(text.replace(",", ""))) if _NUMBER.fullmatch(text) else text).encode("utf-8")


def in_shares(shown: Sequence[tuple[bytes, bytes]], source: random.Random) -> Iterator[int]:
    """Yield the places of the texts that may teach; no answer has more than its share of the first ones.

    They are the most texts of which no answer has more than its share. They come in the given order, but for
    texts of an answer that is frequent in it: these wait until others have come between them.

    Args:
        shown: author and answer of each text of one family; authors in turns.
        source: of randomness, which decides how soon the first text of a frequent answer comes.
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
        """Return from which number on the answer's next text is within its share."""
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
        self._usual = min(max(len(self._counts) - 1, LEAST_ANSWERS), USUAL_ANSWERS)
        self._known: dict[bytes, Fraction] = {}

    def of(self, answer: bytes) -> Fraction:
        """Return an answer's largest share."""
        if answer not in self._known:
            self._known[answer] = min(
                max(Fraction(1, self._usual), self._of_most(answer)), Fraction(1, LEAST_ANSWERS)
            )
        return self._known[answer]

    def quotas(self) -> Counter[bytes]:
        """Return how many texts of each answer may teach, the most that leave none more than its share."""
        total = self._counts.total()
        while True:
            fitting = Counter(
                {answer: self._fitting(count, answer, total) for answer, count in self._counts.items()}
            )
            if fitting.total() == total:
                return fitting
            total = fitting.total()  # no larger total fits, so what ends here is the largest

    def frequent(self) -> list[bytes]:
        """Return the answers that have more than their shares where all accounts show equally many texts."""
        means: defaultdict[bytes, float] = defaultdict(float)
        for counts in self._by_author.values():
            shown = counts.total() * len(self._by_author)
            for answer, count in counts.items():
                means[answer] += count / shown
        return [answer for answer, mean in means.items() if mean * self._usual > 1 and mean > self.of(answer)]

    def _fitting(self, count: int, answer: bytes, total: int) -> int:
        """Return how many of an answer's texts are no more than its share of so many."""
        return count if count * self._usual <= total else min(count, int(total * self.of(answer)))

    def _of_most(self, answer: bytes) -> Fraction:
        """Return the mean of the answer's lowest shares, those of half of the authors, who are all others."""
        shares = sorted(Fraction(counts[answer], counts.total()) for counts in self._by_author.values())
        most = shares[: (len(shares) + 1) // 2]
        return sum(most, Fraction(0)) / len(most)
