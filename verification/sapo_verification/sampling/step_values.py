"""Value of the steps in each account's demonstrations, by their likelihood under this node's own policy.

The checkers score only answers: steps of another task before a right answer earn as much as honest steps, and
a policy that imitates them learns wrong steps. So before a text is trained, the own policy computes two
figures for it:

* *likelihood*: the likelihood of its steps, and of the right answer after them (the value of a prefix, as in
  Math-Shepherd, arXiv 2312.08935, computed instead of sampled);
* *dependence*: how much likelier the steps are after their own prompt than after another one of the family
  (pointwise mutual information), and how much likelier their second half is after the prompt and the first
  half than after those of another text. Steps that do not depend on the text before them have a mean
  dependence of zero, whatever the policy has learned.

Likelihood needs a policy that has learned the family. Dependence distinguishes honest steps from those of
another task much earlier, does not fall when a policy learns to imitate wrong steps, and does not depend on
how common a style is.

Accounts are compared within a family with the median account, so that fewer than half of the accounts that
teach a family cannot move the standard below honest texts. In families that this node knows they are
compared with its own right answers, whatever most accounts write. No opinion of another node enters.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import hypot, sqrt
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.types import Pair
from sapo_verification.weighted_median import weighted_median

TEXTS_IN_MEAN: Final = 16
"""Latest texts of an account in a family that its part of a standard covers: standards rise with learning."""

TEXTS_COMPARED: Final = 64
"""Texts by which it is compared with a standard."""

SPLITS: Final = (0.0, 0.5)
"""Places at which dependence is measured, as parts of the steps; 0 is the end of the prompt.

That of the answer on all steps was measured too and is no guide: it is decided by form, or by the prompt."""

MIN_TEXTS: Final = 6
"""With fewer an account is neither judged nor part of the standard."""

MIN_ACCOUNTS: Final = 3
"""With fewer in a family there is no standard."""

OWN_PART: Final = 0.5
"""Part of the own steps' mean dependence on prompts that is the standard in families that this node knows: a
policy reads honest steps of another notation worse than its own, and finds that they depend on less."""

MIN_OWN_TEXTS: Final = 3
"""Own texts in a family of which that standard may consist: the mean of few is far from a half of it."""

MAX_EARLY: Final = 1024
"""Texts that were read before that standard was known and are compared with it then; the oldest gives way."""

SURE_ERRORS: Final = 3.0
"""Standard errors by which an account must be below, of a mean of many texts."""

LESS_ERRORS: Final = 1.0
"""Standard errors by which one account's steps must depend less than half as much on prompts as another's.

One is enough: honest accounts are as far from half of each other as from steps that depend on nothing."""

MIN_SHARE: Final = -1.0
MAX_SHARE: Final = 2.0
"""Bounds of one text's part of the standard: a single text must not widen the error of its account's mean."""

BENEFIT: Final = 16
"""Texts as good as the standard with which every account is credited where its texts' worth is weighed."""

MAX_PAIRS: Final = 16_384
"""Pairs of account and family that are kept; the one updated longest ago is dropped."""


@dataclass(frozen=True, slots=True)
class Figure:
    """How accounts are compared by one figure of their texts.

    Attributes:
        min_standard: nobody is compared where the median account's mean is smaller.
        misleading_below: part of the standard below which an account's texts are not trained.
    """

    min_standard: float
    misleading_below: float

    def standard(self, value: float) -> float | None:
        """Return a value as a standard; None if it is too small for anybody to be compared with it."""
        return value if value >= self.min_standard else None


LIKELIHOOD: Final = Figure(min_standard=0.2, misleading_below=0.6)
"""A policy that finds even the median account's texts less likely cannot judge by likelihood."""

DEPENDENCE: Final = Figure(min_standard=1.0, misleading_below=0.5)
"""In nats."""

FIGURES: Final = (LIKELIHOOD, *(DEPENDENCE for _ in SPLITS))
"""In the order of ``StepValue.figures``."""


@dataclass(frozen=True, slots=True)
class StepValue:
    """Figures of the steps of one text.

    Attributes:
        likelihood: of a step's token (geometric mean) times that of the answer after the steps, 0 to 1.
        dependence: for each split the nats by which the steps from there on are likelier after the text
            before them than after another text's; None where there was no other, or nothing to compare.
    """

    likelihood: float
    dependence: tuple[float | None, ...] = (None,) * len(SPLITS)

    @property
    def figures(self) -> tuple[float | None, ...]:
        """All figures, as ``FIGURES`` describes them."""
        return (self.likelihood, *self.dependence)


JudgedSteps = tuple[Account, int, StepValue]
"""Author of a text, its family as an index of the suite, and the figures of its steps."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean and variance of the last values, of which older ones count less and less.

    Attributes:
        count: values that it covers, at most the window.
    """

    value: float = 0.0
    variance: float = 0.0
    count: int = 0

    def with_value(self, value: float, window: int) -> Mean:
        """Return the mean with one more value."""
        count = min(self.count + 1, window)
        difference = value - self.value
        variance = (1 - 1 / count) * (self.variance + difference * difference / count)
        return Mean(self.value + difference / count, variance, count)

    @staticmethod
    def of_all(means: Iterable[Mean]) -> Mean:
        """Return the mean of the values of several, as if each mean were the true one of its values."""
        means = list(means)
        count = sum(mean.count for mean in means)
        if not count:
            return Mean()
        return Mean(
            sum(mean.count * mean.value for mean in means) / count,
            sum(mean.count * mean.variance for mean in means) / count,
            count,
        )

    def is_below(self, bound: float) -> bool:
        """Whether it is surely below a bound."""
        return self.count >= MIN_TEXTS and self.value + self._margin < bound

    def is_above(self, bound: float) -> bool:
        """Whether it is surely not below."""
        return self.count >= MIN_TEXTS and self.value - self._margin >= bound

    @property
    def error(self) -> float:
        """Standard error; it needs a value."""
        return sqrt(self.variance / self.count)

    @property
    def _margin(self) -> float:
        """How far the mean may be from the true one; it needs ``MIN_TEXTS`` values.

        The spread of few texts is small now and then by chance. The factor is that of Student's t (within
        1 %) for the risk of ``SURE_ERRORS``: 0.13 % for many normal values, 0.20 % for six, for the variance
        is divided by their number, not by one less.
        """
        return SURE_ERRORS * (1 + 2.6 / (self.count - 2.9)) * self.error


_Figures = tuple[float | None, ...]
"""Of a text or a standard, in the order of ``FIGURES``; None where it is not known or not compared."""


@dataclass(frozen=True, slots=True)
class _Record:
    """Means of an account in a family by figure: as they are, and as parts of the standard of their time."""

    means: tuple[Mean, ...] = (Mean(),) * len(FIGURES)
    shares: tuple[Mean, ...] = (Mean(),) * len(FIGURES)

    def with_text(self, figures: _Figures, standards: _Figures) -> _Record:
        """Return the record with one more text, compared with the standards of its time."""
        means, shares = list(self.means), list(self.shares)
        for place, (found, standard) in enumerate(zip(figures, standards, strict=True)):
            if found is not None:
                means[place] = means[place].with_value(found, TEXTS_IN_MEAN)
                if standard is not None:
                    shares[place] = shares[place].with_value(_bounded(found / standard), TEXTS_COMPARED)
        return _Record(tuple(means), tuple(shares))


class StepValues:
    """Mean values of each account's texts by family, and who is far below the others."""

    def __init__(self) -> None:
        self._own: defaultdict[int, Mean] = defaultdict(Mean)
        self._early: deque[JudgedSteps] = deque(maxlen=MAX_EARLY)
        self._records: OrderedDict[Pair, _Record] = OrderedDict()
        self._weights: Mapping[Account, float] | None = None

    def accounts(self) -> frozenset[Account]:
        """Return the accounts of which a standard may consist."""
        return frozenset(account for account, _ in self._records)

    def learn(
        self,
        values: Iterable[JudgedSteps],
        weights: Mapping[Account, float] | None = None,
    ) -> None:
        """Record the values of the texts of one round, each with its account and family.

        What a policy learns makes all texts of a family likelier and more dependent on their prompts, so each
        is compared with the standard of its own time.

        Args:
            weights: of all accounts in a standard from now on, in any unit; without them all are equal. An
                account that is missing has none.
        """
        self._weights = weights
        standards = {family: self.standards(family) for family in {family for _, family in self._records}}
        for account, family, value in values:
            self._record((account, family), value.figures, standards.get(family, (None,) * len(FIGURES)))

    def learn_known(self, own: Iterable[tuple[int, StepValue]], others: Iterable[JudgedSteps]) -> None:
        """Record the values of texts in families that this node knows.

        They are compared by their dependence on prompts alone. No other notation is as likely as the own one,
        and a policy that does not write it cannot tell how it goes on.

        Args:
            own: of own right answers, each with its family.
            others: of other accounts' texts, each with its account and family.
        """
        for family, value in own:
            on_prompts, _ = value.dependence
            if on_prompts is not None:
                self._own[family] = self._own[family].with_value(on_prompts, TEXTS_IN_MEAN)
        texts = [*self._early, *others]
        self._early.clear()
        for account, family, value in texts:
            if not self._has_own(family):
                self._early.append((account, family, value))
                continue
            on_prompts, _ = value.dependence
            self._record(
                (account, family), (None, on_prompts, None), (None, self._own_standard(family), None)
            )

    def _has_own(self, family: int) -> bool:
        return self._own[family].count >= MIN_OWN_TEXTS

    def _own_standard(self, family: int) -> float | None:
        return DEPENDENCE.standard(OWN_PART * self._own[family].value) if self._has_own(family) else None

    def _record(self, pair: Pair, figures: _Figures, standards: _Figures) -> None:
        self._records[pair] = self._records.pop(pair, _Record()).with_text(figures, standards)
        if len(self._records) > MAX_PAIRS:
            self._records.popitem(last=False)

    def standards(self, family: int) -> tuple[float | None, ...]:
        """Return the median account's mean by figure; None where there is none yet, or it is too small."""
        records = [
            (record, self._weight(account))
            for (account, each), record in self._records.items()
            if each == family
        ]
        found = [
            _median((each.means[place], weight) for each, weight in records) for place in range(len(FIGURES))
        ]
        return tuple(figure.standard(value) for value, figure in zip(found, FIGURES, strict=True))

    def _weight(self, account: Account) -> float:
        return 1.0 if self._weights is None else self._weights.get(account, 0.0)

    def misleading(self) -> frozenset[Pair]:
        """Return the accounts, with the families, whose steps are worth far less than the median's.

        They are below by their texts in the family, or in another one or over all families, and not surely
        above in it: an account that misleads in families that this node can judge is not trusted in others.
        """
        return self._misleading_by(FIGURES)

    def worth(self, account: Account, family: int) -> float:
        """Return the part of its places that an account's texts in a family are worth, 0 to 1.

        It is the mean part of the standard by the figure where that is smallest, and near 1 for few texts.
        """
        return min(map(_worth, self._records.get((account, family), _Record()).shares))

    def unrelated(self) -> frozenset[Account]:
        """Return the accounts that mislead in some family because their steps depend on too little."""
        return frozenset(account for account, _ in self._misleading_by((DEPENDENCE,)))

    def votes(self) -> Mapping[Account, float]:
        """Return the part of its vote on what is usual that each account has, if not the whole one.

        It is what the account's texts are worth, by dependence on prompts, in all families that this node
        knows, 0 to 1 and near 1 for few texts; nothing if its steps are unrelated to their prompts. Who is
        merely unlikely has its whole vote: it may have its own way.
        """
        on_prompts: defaultdict[Account, list[Mean]] = defaultdict(list)
        for (account, family), record in self._records.items():
            if self._own_standard(family) is not None:
                _, share, _ = record.shares
                on_prompts[account].append(share)
        worth = {account: _worth(Mean.of_all(shares)) for account, shares in on_prompts.items()}
        return worth | dict.fromkeys(self.unrelated(), 0.0)

    def depends_less(self, family: int, account: Account, other: Account) -> bool:
        """Whether an account's steps depend, by an error, less than half as much on prompts as another's."""
        own, others = (self._on_prompts(each, family) for each in (account, other))
        if min(own.count, others.count) < MIN_TEXTS:
            return False
        return others.value / 2 - own.value > LESS_ERRORS * hypot(own.error, others.error / 2)

    def _on_prompts(self, account: Account, family: int) -> Mean:
        _, on_prompts, _ = self._records.get((account, family), _Record()).means
        return on_prompts

    def _misleading_by(self, figures: Collection[Figure]) -> frozenset[Pair]:
        by_account: defaultdict[Account, dict[int, _Record]] = defaultdict(dict)
        for (account, family), record in self._records.items():
            by_account[account][family] = record
        return frozenset(
            (account, family)
            for account, records in by_account.items()
            for place, figure in enumerate(FIGURES)
            if figure in figures
            for family in _below(
                {family: record.shares[place] for family, record in records.items()}, figure.misleading_below
            )
        )


def _worth(share: Mean) -> float:
    return min(max((BENEFIT + share.count * share.value) / (BENEFIT + share.count), 0.0), 1.0)


def _below(shares: Mapping[int, Mean], bound: float) -> Iterator[int]:
    """Yield the families in which an account is below, or may be, because it is elsewhere or over all."""
    each = shares.values()
    if any(share.is_below(bound) for share in (Mean.of_all(each), *each)):
        yield from (family for family, share in shares.items() if not share.is_above(bound))


def _median(means: Iterable[tuple[Mean, float]]) -> float:
    """Return the weighted median of the means that cover enough values; 0 where they are too few.

    It is the middle of all values that at most half of the weight is below and at most half above; of equal
    weights the usual median.
    """
    known = sorted((mean.value, weight) for mean, weight in means if mean.count >= MIN_TEXTS and weight > 0)
    if len(known) < MIN_ACCOUNTS:
        return 0.0
    return (weighted_median(known) + weighted_median(known[::-1])) / 2


def _bounded(share: float) -> float:
    return min(max(share, MIN_SHARE), MAX_SHARE)
