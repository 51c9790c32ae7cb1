"""Detection of planted text: features of answers that few accounts have taught the policy.

A policy that learns from others writes like them, so that changed text alone is no sign of harm. A feature (a
run of four characters, or a length) counts as planted if three conditions hold: the policy shows it more
often than its shadow, which trains on own groups only; the policy shows it more often than most of the
accounts whose text it was trained on; and some of those accounts show it more often than most. These accounts
planted it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, log, log1p
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.node.training.canary_state import SURE_RATIO, evidence, log_comb, log_sum
from sapo_verification.screens.pair_counts import MIN_OTHERS, PairCounts
from sapo_verification.screens.run_counts import RunCounts, runs_of
from sapo_verification.weighted_median import weighted_median

if TYPE_CHECKING:
    from collections.abc import Set

    from sapo_protocol.identifiers import Account

CHANCE: Final = 0.001
"""Significance level: the probability that a count wrongly seems to be above the usual share."""

FADE_TEXTS: Final = 128
"""At so many texts all counts of an account and a family are halved, so that old text fades."""

WIDTH: Final = 4_096
"""12 KiB of counts per account and family; see ``RecurringRuns``."""

MAX_FEATURES: Final = 256
"""Features of a text; of a longer text a keyed sample, which is likely to contain a part of any long
phrase."""

RARE: Final = 0.02
"""Least share of texts with a feature that is compared, since counts are estimates."""

MIN_TEXTS: Final = 4
"""Texts of an account with a feature; fewer are never significant among a dozen accounts."""

LENGTH_RATIO: Final = 1.25
"""Ratio of each length that is a feature to the next shorter one."""


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Answers to one held-out task: the policy's, and that of its shadow."""

    family: int
    policy: bytes
    shadow: bytes


@dataclass(frozen=True, slots=True)
class PlantedText:
    """Planted text that was found.

    Attributes:
        answers: number of the policy's answers with a planted feature that the shadow's answer lacks.
        accounts: those that show such a feature far more often than most.
    """

    answers: int
    accounts: frozenset[Account]


NOTHING: Final = PlantedText(0, frozenset())


class OthersText:
    """Features of others' text on which this node was trained, by account and family.

    Args:
        key: at most 64 random bytes that no other node knows.
    """

    def __init__(self, key: bytes) -> None:
        self._counts = PairCounts(key, width=WIDTH, fade_groups=FADE_TEXTS)
        self._tallies: defaultdict[int, _Tally] = defaultdict(_Tally)

    async def learn(self, texts: Iterable[tuple[Account, int, bytes]]) -> None:
        """Count the features of texts that enter a training step, yielding to other tasks in between.

        Args:
            texts: author, family and completion of each.
        """
        for account, family, completion in texts:
            self._counts.add((account, family), self._features(completion))
            await trio.lowlevel.checkpoint()

    def accounts(self) -> frozenset[Account]:
        """Return the accounts with counted text."""
        return self._counts.accounts()

    def weigh(self, weights: Mapping[Account, float]) -> None:
        """Set the weights of accounts in comparisons; an account without one has weight 0."""
        self._counts.weigh(weights)

    def reset_comparison(self) -> None:
        """Drop all answers, since policy and shadow have become equal."""
        self._tallies.clear()

    async def planted(self, pairs: Sequence[AnswerPair]) -> PlantedText:
        """Return the planted text in the policy's answers and its authors, yielding to other tasks in
        between.

        Args:
            pairs: of one check; those of earlier checks since ``reset_comparison`` count as well.
        """
        families = {family: self._usual(family) for family in {each.family for each in pairs}}
        known = [pair for pair in pairs if families[pair.family].is_known]
        held = [(self._features(pair.policy), self._features(pair.shadow)) for pair in known]
        for pair, (policy, shadow) in zip(known, held, strict=True):
            self._tallies[pair.family].add(policy, shadow, families[pair.family])
            await trio.lowlevel.checkpoint()  # long texts take some 50 ms each
        usual = {family: each for family, each in families.items() if each.is_known}
        suspicious = {feature for family in usual for feature in self._tallies[family].more}
        planted = {each for each in suspicious if self._is_planted(each, usual, len(suspicious))}
        accounts = {
            account
            for family, each in usual.items()
            for feature in planted
            if self._tallies[family].more[feature]
            for account in each.accounts_above(feature, len(suspicious))
        }
        if not accounts:
            return NOTHING
        answers = sum(bool(planted & (policy - shadow)) for policy, shadow in held)
        return PlantedText(answers, frozenset(accounts))

    def _usual(self, family: int) -> _Usual:
        accounts = self._counts.compared(family)
        return _Usual(accounts, {account: self._counts.weight(account) for account in accounts})

    def _is_planted(self, feature: int, usual: Mapping[int, _Usual], tests: int) -> bool:
        """Whether the policy shows a feature more often than its shadow and than most accounts do."""
        tallies = {family: self._tallies[family] for family in usual if feature in self._tallies[family].more}
        more, less, shown, asked = (
            sum(each)
            for each in zip(
                *((t.more[feature], t.less[feature], t.shown[feature], t.asked) for t in tallies.values()),
                strict=True,
            )
        )
        expected = fsum(usual[family].share(feature) * tally.asked for family, tally in tallies.items())
        is_new = evidence(more, less) > SURE_RATIO * tests
        return is_new and is_above(shown, asked, expected / asked, tests)

    def _features(self, completion: bytes) -> frozenset[int]:
        text = "".join(completion.decode("utf-8", "replace").casefold().split())
        return frozenset(sorted(self._counts.hashed({*runs_of(text), *_lengths(text)}))[:MAX_FEATURES])


@dataclass(slots=True)
class _Tally:
    """Counts over the answers to the items of a family since policy and shadow were equal.

    Attributes:
        asked: number of items.
        shown: by suspicious feature, the number of the policy's answers with it.
        more: of these, those whose shadow answer lacks the feature.
        less: the number of shadow answers with the feature whose policy answer lacks it.
    """

    asked: int = 0
    shown: Counter[int] = field(default_factory=Counter)
    more: Counter[int] = field(default_factory=Counter)
    less: Counter[int] = field(default_factory=Counter)

    def add(self, policy: Set[int], shadow: Set[int], usual: _Usual) -> None:
        """Count a pair of answers, with those features that some accounts show unusually often."""
        self.asked += 1
        self.shown.update(feature for feature in policy if usual.is_suspicious(feature))
        self.more.update(feature for feature in policy - shadow if usual.is_suspicious(feature))
        self.less.update(feature for feature in shadow - policy if usual.is_suspicious(feature))


class _Usual:
    """How often the accounts of a family show a feature."""

    def __init__(self, accounts: Mapping[Account, RunCounts], weights: Mapping[Account, float]) -> None:
        self._accounts, self._weights = accounts, weights
        self._suspicious: dict[int, bool] = {}

    @property
    def is_known(self) -> bool:
        """Whether there are enough accounts to compare."""
        return len(self._accounts) > MIN_OTHERS

    def share(self, feature: int) -> float:
        """Return the weighted (upper) median of the accounts' shares, at least ``RARE``."""
        shares = [
            (counts.share(feature), self._weights[account]) for account, counts in self._accounts.items()
        ]
        return max(RARE, weighted_median(sorted(shares, reverse=True)))

    def is_suspicious(self, feature: int) -> bool:
        """Whether some accounts show a feature significantly more often than the median one."""
        if feature not in self._suspicious:
            self._suspicious[feature] = any(self.accounts_above(feature, 1))
        return self._suspicious[feature]

    def accounts_above(self, feature: int, tests: int) -> Iterator[Account]:
        """Yield the accounts that show a feature significantly more often than the median one."""
        shown = {account: each.count(feature) for account, each in self._accounts.items()}
        if max(shown.values()) < MIN_TEXTS:
            return
        usual = self.share(feature)
        for account, counts in self._accounts.items():
            if is_above(shown[account], counts.groups, usual, tests * len(self._accounts)):
                yield account


def is_above(count: int, among: int, share: float, tests: int = 1) -> bool:
    """Whether a count of ``among`` is significantly above a share (binomial test, corrected for
    ``tests``)."""
    if count <= among * share or share >= 1.0:
        return False
    log_share, log_rest = log(share), log1p(-share)
    terms = (log_comb(among, k) + k * log_share + (among - k) * log_rest for k in range(count, among + 1))
    return log_sum(terms) < log(CHANCE / tests)


def _lengths(text: str) -> Iterator[str]:
    """Return the lengths that a text reaches, as features."""
    length = 8.0
    while length <= len(text):
        yield f"\0{length:.0f}"
        length *= LENGTH_RATIO
