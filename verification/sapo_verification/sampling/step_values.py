"""What the steps of each account's demonstrations are worth to this node's own policy.

A checker sees answers only: steps of another task before a right answer earn what honest steps earn, and a
policy that imitates them learns to write nonsense. So each text is read by the own policy before it is
trained on it, in two ways:

* *likelihood*: how likely are its steps, and how likely is the right answer after them (the value of a
  prefix, as in Math-Shepherd, arXiv 2312.08935, computed instead of sampled)?
* *dependence*: how much likelier are the steps after their own prompt than after another one of the family
  (pointwise mutual information), and how much likelier is their second half after the prompt and the first
  half than after another text's? What does not depend on the text before it has none in the mean, whatever
  the policy has learned and however well its style is known.

Likelihood needs a policy that has learned the family. Dependence tells honest steps from foreign ones much
earlier, does not fall when a policy learns to imitate nonsense, and a style that nobody else uses has it too.

Accounts are compared within a family with the median account, so that fewer than half of the accounts that
teach a family cannot move the standard below honest texts. No opinion of another node enters.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final

from sapo_protocol.identifiers import Account

TEXTS_IN_MEAN: Final = 16
"""Texts of an account in a family that its mean likelihood covers."""

TEXTS_OF_DEPENDENCE: Final = 64
"""Texts that the means of dependence cover, which are noisier."""

SPLITS: Final = (0.0, 0.5)
"""Places at which dependence is measured, as parts of the steps; 0 is the end of the prompt.

That of the answer on all steps was measured too and is no guide: it is decided by form, or by the prompt."""

LEAST_TEXTS: Final = 6
"""With fewer an account is neither judged nor part of the standard."""

LEAST_ACCOUNTS: Final = 3
"""With fewer in a family there is no standard."""

LEAST_STANDARD: Final = 0.2
"""A policy that finds even the median account's texts less likely than this cannot judge by likelihood."""

LEAST_DEPENDENCE: Final = 1.0
"""Nats of the median account below which nobody is compared with it."""

MISLEADING_BELOW: Final = 0.6
"""Part of the standard of likelihood below which an account's texts are not trained."""

INDEPENDENT_BELOW: Final = 0.5
"""Part of the standard of dependence below which an account's texts are not trained."""

SURE_ERRORS: Final = 3.0
"""Standard errors by which an account must be below."""

LEAST_SHARE: Final = -1.0
MOST_SHARE: Final = 2.0
"""Bounds of one text's part of the standard: a single text must not widen the error of its account's mean."""

MAX_PAIRS: Final = 16_384
"""Pairs of account and family that are kept; the one updated longest ago is dropped."""

Pair = tuple[Account, int]
"""Account and index of a family."""


@dataclass(frozen=True, slots=True)
class StepValue:
    """What the steps of one text are worth.

    Attributes:
        likelihood: of a step's token (geometric mean) times that of the answer after the steps, 0 to 1.
        dependence: for each split the nats by which the steps from there on are likelier after the text
            before them than after another text's; None where there was no other, or nothing to compare.
    """

    likelihood: float
    dependence: tuple[float | None, ...] = (None,) * len(SPLITS)


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

    @property
    def is_below(self) -> bool:
        """Whether it is surely below the part of the standard that is asked."""
        return self.count >= LEAST_TEXTS and self.value + self._margin < INDEPENDENT_BELOW

    @property
    def is_above(self) -> bool:
        """Whether it is surely not."""
        return self.count >= LEAST_TEXTS and self.value - self._margin >= INDEPENDENT_BELOW

    @property
    def _margin(self) -> float:
        return SURE_ERRORS * sqrt(self.variance / self.count)


@dataclass(frozen=True, slots=True)
class _Record:
    """Means of an account in a family; dependence at each split in nats and as part of the standard."""

    likelihood: Mean = Mean()
    dependence: tuple[Mean, ...] = (Mean(),) * len(SPLITS)
    shares: tuple[Mean, ...] = (Mean(),) * len(SPLITS)

    def with_value(self, value: StepValue, standards: tuple[float | None, ...]) -> _Record:
        """Return the record with one more text, compared with the standards of its time."""
        pairs = list(zip(value.dependence, standards, strict=True))
        return _Record(
            self.likelihood.with_value(value.likelihood, TEXTS_IN_MEAN),
            tuple(
                mean if nats is None else mean.with_value(nats, TEXTS_OF_DEPENDENCE)
                for mean, (nats, _) in zip(self.dependence, pairs, strict=True)
            ),
            tuple(
                mean
                if nats is None or standard is None
                else mean.with_value(_bounded(nats / standard), TEXTS_OF_DEPENDENCE)
                for mean, (nats, standard) in zip(self.shares, pairs, strict=True)
            ),
        )


class StepValues:
    """Mean values of each account's texts by family, and who is far below the others."""

    def __init__(self) -> None:
        self._records: OrderedDict[Pair, _Record] = OrderedDict()

    def learn(self, values: Iterable[tuple[Account, int, StepValue]]) -> None:
        """Record the values of the texts of one round, each with its account and family.

        What a policy learns makes all texts of a family more dependent on their prompts, so each is compared
        with the standard of its own time.
        """
        families = {family for _, family in self._records}
        standards = {family: self.dependence_standards(family) for family in families}
        for account, family, value in values:
            record = self._records.pop((account, family), _Record())
            known = standards.get(family, (None,) * len(SPLITS))
            self._records[account, family] = record.with_value(value, known)
            if len(self._records) > MAX_PAIRS:
                self._records.popitem(last=False)

    def standard(self, family: int) -> float | None:
        """Return the median account's mean likelihood in a family; None where there is none yet."""
        found = _median(record.likelihood for record in self._of(family))
        return found if found >= LEAST_STANDARD else None

    def dependence_standards(self, family: int) -> tuple[float | None, ...]:
        """Return the median account's mean dependence at each split, in nats; None where it is too small."""
        records = list(self._of(family))
        found = [_median(each.dependence[split] for each in records) for split in range(len(SPLITS))]
        return tuple(value if value >= LEAST_DEPENDENCE else None for value in found)

    def misleading(self) -> frozenset[Pair]:
        """Return the accounts, with the families, whose steps are worth far less than the median's."""
        return frozenset([*self._unlikely(), *self._independent()])

    def _of(self, family: int) -> Iterator[_Record]:
        return (record for (_, each), record in self._records.items() if each == family)

    def _unlikely(self) -> Iterator[Pair]:
        standards = {family: self.standard(family) for family in {family for _, family in self._records}}
        for (account, family), record in self._records.items():
            mean, standard = record.likelihood, standards[family]
            if mean.count >= LEAST_TEXTS and standard and mean.value < MISLEADING_BELOW * standard:
                yield account, family

    def _independent(self) -> Iterator[Pair]:
        """Yield the pairs that are below by their texts, or by the account's and not above by their own."""
        by_account: defaultdict[Account, dict[int, _Record]] = defaultdict(dict)
        for (account, family), record in self._records.items():
            by_account[account][family] = record
        for account, records in by_account.items():
            for split in range(len(SPLITS)):
                shares = {family: record.shares[split] for family, record in records.items()}
                yield from ((account, family) for family in _below(shares))


def _below(shares: Mapping[int, Mean]) -> Iterator[int]:
    """Yield the families in which an account is below, by its texts there or by those in all families."""
    is_below = Mean.of_all(shares.values()).is_below
    for family, share in shares.items():
        if share.is_below or (is_below and not share.is_above):
            yield family


def _median(means: Iterable[Mean]) -> float:
    """Return the median of the means that cover enough values; 0 where they are too few."""
    known = [mean.value for mean in means if mean.count >= LEAST_TEXTS]
    return median(known) if len(known) >= LEAST_ACCOUNTS else 0.0


def _bounded(share: float) -> float:
    return min(max(share, LEAST_SHARE), MOST_SHARE)
