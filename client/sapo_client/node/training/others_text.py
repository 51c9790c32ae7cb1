"""What the policy says more often than it would alone, and than most accounts do: planted text.

A policy that learns from others speaks like them, so that a changed text is no sign of harm. It is one if
three things are true of some feature of the answers, a run of four characters or a length: the policy shows
it more often than its shadow, which trains on own text alone; more often than most of the accounts whose text
it was trained on; and some of those accounts show it more often than most. These planted it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb, fsum
from typing import TYPE_CHECKING, Final

from sapo_verification.screens.pair_counts import LEAST_OTHERS, PairCounts
from sapo_verification.screens.run_counts import RunCounts, runs_of
from sapo_verification.weighted import at_half_of_the_weight

if TYPE_CHECKING:
    from collections.abc import Set

    from sapo_protocol.identifiers import Account

CHANCE: Final = 0.001
"""Chance that a check finds a gap, of the reward or of the text, where there is none."""

FADE_TEXTS: Final = 128
"""At so many texts all counts of an account and a family are halved: what it showed long ago fades."""

WIDTH: Final = 4_096
"""24 KiB of counts per account and family; see ``RecurringRuns``."""

RARE: Final = 0.02
"""Share of an account's texts with a feature that is not worth a comparison: counts are estimates."""

LENGTH_RATIO: Final = 1.25
"""Of each length that is a feature to the next shorter one."""


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Answers to one held-out task: the policy's, and that of its shadow."""

    family: int
    policy: bytes
    shadow: bytes


@dataclass(frozen=True, slots=True)
class PlantedText:
    """What others' text has planted.

    Attributes:
        answers: of the policy that hold a planted feature, where the shadow's does not.
        accounts: that show such a feature far more often than most.
    """

    answers: int
    accounts: frozenset[Account]


NOTHING: Final = PlantedText(0, frozenset())


class OthersText:
    """Features of the text of others that this node was trained on, by account and family.

    Args:
        key: at most 64 random bytes that no other node knows.
    """

    def __init__(self, key: bytes) -> None:
        self._counts = PairCounts(key, width=WIDTH, fade_groups=FADE_TEXTS)

    def learn(self, account: Account, family: int, completion: bytes) -> None:
        """Count the features of a text that enters a training step."""
        self._counts.add((account, family), self._features(completion))

    def planted(self, pairs: Sequence[AnswerPair]) -> PlantedText:
        """Return what of the policy's answers was planted, and by whom."""
        compared = {family: self._counts.compared(family) for family in {pair.family for pair in pairs}}
        known = [pair for pair in pairs if len(compared[pair.family]) > LEAST_OTHERS]
        usual = {pair.family: _Usual(compared[pair.family]) for pair in known}
        found = [self._excess(pair) for pair in known]
        more = Counter(feature for with_others, _ in found for feature in with_others)
        less = Counter(feature for _, without in found for feature in without)
        enough = [feature for feature in more if is_gap(more[feature], 0, 1)]
        accounts: set[Account] = set()
        planted: set[int] = set()
        shown = Counter(feature for pair in known for feature in self._features(pair.policy))
        for feature in enough:
            by_family = {family: each.share(feature) for family, each in usual.items()}
            expected = fsum(by_family[pair.family] for pair in known) / len(known)
            if not is_gap(more[feature], less[feature], len(enough)):
                continue
            if not is_above(shown[feature], len(known), expected, len(enough)):
                continue
            culprits = {
                account for each in usual.values() for account in each.accounts_above(feature, len(enough))
            }
            accounts |= culprits
            planted |= {feature} if culprits else set()
        return PlantedText(sum(bool(planted & excess) for excess, _ in found), frozenset(accounts))

    def _excess(self, pair: AnswerPair) -> tuple[Set[int], Set[int]]:
        """Return the features of the policy's answer alone, and those of the shadow's alone."""
        policy, shadow = self._features(pair.policy), self._features(pair.shadow)
        return policy - shadow, shadow - policy

    def _features(self, completion: bytes) -> frozenset[int]:
        text = "".join(completion.decode("utf-8", "replace").casefold().split())
        return self._counts.hashed({*runs_of(text), *_lengths(text)})


class _Usual:
    """How often the accounts of a family show a feature."""

    def __init__(self, accounts: Mapping[Account, RunCounts]) -> None:
        self._accounts = accounts

    def share(self, feature: int) -> float:
        """Return the median of the shares, by the number of texts that were trained, of two the larger.

        It is at least ``RARE``.
        """
        shares = [(counts.share(feature), float(counts.groups)) for counts in self._accounts.values()]
        return max(RARE, at_half_of_the_weight(sorted(shares, reverse=True)))

    def accounts_above(self, feature: int, tests: int) -> Iterator[Account]:
        """Return the accounts that show a feature more often than the median one, beyond chance."""
        usual = self.share(feature)
        for account, counts in self._accounts.items():
            if is_above(counts.count(feature), counts.groups, usual, tests * len(self._accounts)):
                yield account


def is_gap(worse: int, better: int, tests: int = 1) -> bool:
    """Whether more pairs of answers are worse than better, beyond the chance of so many tests (sign test)."""
    return is_above(worse, worse + better, 0.5, tests)


def is_above(count: int, among: int, share: float, tests: int = 1) -> bool:
    """Whether a count is above a share of all, beyond the chance of so many tests (binomial test)."""
    if count <= among * share:
        return False
    tail = fsum(comb(among, k) * share**k * (1.0 - share) ** (among - k) for k in range(count, among + 1))
    return tail < CHANCE / tests


def _lengths(text: str) -> Iterator[str]:
    """Return the lengths that a text reaches, as features."""
    length = 8.0
    while length <= len(text):
        yield f"\0{length:.0f}"
        length *= LENGTH_RATIO
