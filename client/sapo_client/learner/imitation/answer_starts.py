"""Limit on an author's texts whose answers begin alike.

Many different right answers that begin with the same character are each as rare as honest ones, and together
teach that answers begin so. An author chooses its tasks, so it may show nothing else. Whoever shows a start
far more often than most authors, beyond chance, has as much of it as they have and no more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import exp, fsum, lgamma, log, log1p, sqrt
from typing import Final

MIN_AUTHORS: Final = 3
"""With fewer the half that shows a start least is one author, and its texts are one sample."""

CHANCE: Final = 0.001
"""Probability that an honest author's texts are limited, at most, if answers are drawn as most draw them."""

DEVIATIONS: Final = 2.0
"""Standard deviations by which the usual share is above the measured one."""

MAX_SHARE: Final = 0.95
"""Usual share from which a start is not limited: the family's answers begin so."""


def without_excess(shown: Sequence[tuple[bytes, bytes]]) -> list[int]:
    """Return the indices of the texts that are left, in order.

    Args:
        shown: author and answer of each text of one family.
    """
    limits = _limits(shown)
    if not limits:
        return list(range(len(shown)))
    taken: Counter[tuple[bytes, bytes]] = Counter()
    left = []
    for place, (author, answer) in enumerate(shown):
        pair = author, answer[:1]
        taken[pair] += 1
        if taken[pair] <= limits.get(pair, len(shown)):
            left.append(place)
    return left


def _limits(shown: Sequence[tuple[bytes, bytes]]) -> Mapping[tuple[bytes, bytes], int]:
    """Return how many texts of a start are left of those authors that show it too often."""
    starts: defaultdict[bytes, Counter[bytes]] = defaultdict(Counter)
    for author, answer in shown:
        starts[author][answer[:1]] += 1
    if len(starts) < MIN_AUTHORS:
        return {}
    known = {start for counts in starts.values() for start in counts}
    return dict(_excess(starts, known))


def _excess(
    starts: Mapping[bytes, Counter[bytes]], known: set[bytes]
) -> Iterator[tuple[tuple[bytes, bytes], int]]:
    tests = len(starts) * len(known)
    sizes = {author: counts.total() for author, counts in starts.items()}
    for start in sorted(known):
        usual = _usual_share([(counts[start], sizes[author]) for author, counts in starts.items()])
        for author, counts in starts.items():
            if _is_above(counts[start], sizes[author], usual, CHANCE / tests):
                others = sizes[author] - counts[start]
                yield (author, start), max(1, int(usual / (1.0 - usual) * others))


def _usual_share(counts: Sequence[tuple[int, int]]) -> float:
    """Return the largest share that a start may have in the texts of the authors that show it least.

    They are half of the authors, and with this node a majority. It is an upper bound (Wilson 1927), for who
    shows it least shows it less than most, and few texts are no evidence that nobody shows it.

    Args:
        counts: by author, the texts with the start and all texts.
    """
    least = sorted(counts, key=lambda each: each[0] / each[1])[: (len(counts) + 1) // 2]
    with_start, texts = (sum(column) for column in zip(*least, strict=True))
    share, added = with_start / texts, DEVIATIONS * DEVIATIONS / texts
    error = DEVIATIONS * sqrt(share * (1.0 - share) / texts + added / (4.0 * texts))
    return (share + added / 2.0 + error) / (1.0 + added)


def _is_above(count: int, among: int, share: float, chance: float) -> bool:
    """Whether a count is above a share, with this probability of being so by chance (binomial test)."""
    if count <= share * among or share >= MAX_SHARE:
        return False
    one, other = log(share), log1p(-share)
    terms = (_log_comb(among, k) + k * one + (among - k) * other for k in range(count, among + 1))
    return fsum(map(exp, terms)) < chance


def _log_comb(among: int, count: int) -> float:
    return lgamma(among + 1) - lgamma(count + 1) - lgamma(among - count + 1)
