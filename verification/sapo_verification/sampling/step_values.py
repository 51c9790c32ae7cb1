"""What the steps of each account's demonstrations are worth to this node's own policy.

A checker sees answers only: steps of another task before a right answer earn what honest steps earn, and a
policy that imitates them learns to write nonsense. But of nonsense nothing can be predicted. So each text is
read by the own policy before it is trained on it: how likely are its steps, and how likely is the right
answer after them (the value of a prefix, as in Math-Shepherd, arXiv 2312.08935, computed instead of sampled)?
At first no text is likely; once the policy has learned a family from the accounts that teach it, nonsense
remains unlikely.

Accounts are compared within a family, with the median account, so that fewer than half of the accounts that
teach a family cannot move the standard below honest texts. No opinion of another node enters.
"""

from collections import OrderedDict
from statistics import median
from typing import Final

from sapo_protocol.identifiers import Account

TEXTS_IN_MEAN: Final = 16
"""Texts of an account in a family that its mean covers."""

LEAST_TEXTS: Final = 6
"""With fewer an account is neither judged nor part of the standard."""

LEAST_ACCOUNTS: Final = 3
"""With fewer in a family there is no standard."""

LEAST_STANDARD: Final = 0.2
"""A policy that finds even the median account's texts less likely than this cannot judge yet."""

MISLEADING_BELOW: Final = 0.6
"""Part of the standard below which an account's texts are not trained."""

MAX_PAIRS: Final = 16_384
"""Pairs of account and family that are kept; the one updated longest ago is dropped."""


class StepValues:
    """Mean value of each account's texts by family, and who is far below the others."""

    def __init__(self) -> None:
        self._means: OrderedDict[tuple[Account, int], tuple[float, int]] = OrderedDict()

    def learn(self, account: Account, family: int, value: float) -> None:
        """Record the value of one text, 0 to 1."""
        mean, count = self._means.pop((account, family), (0.0, 0))
        count += 1
        self._means[account, family] = (mean + (value - mean) / min(count, TEXTS_IN_MEAN), count)
        if len(self._means) > MAX_PAIRS:
            self._means.popitem(last=False)

    def standard(self, family: int) -> float | None:
        """Return the median account's mean in a family; None where there is none yet."""
        known = [
            mean
            for (_, each), (mean, count) in self._means.items()
            if each == family and count >= LEAST_TEXTS
        ]
        found = median(known) if len(known) >= LEAST_ACCOUNTS else 0.0
        return found if found >= LEAST_STANDARD else None

    def misleading(self) -> frozenset[tuple[Account, int]]:
        """Return the accounts, with the families, whose texts are worth far less than the median's."""
        standards = {family: self.standard(family) for family in {family for _, family in self._means}}
        return frozenset(
            (account, family)
            for (account, family), (mean, count) in self._means.items()
            if count >= LEAST_TEXTS
            and (standard := standards[family]) is not None
            and mean < MISLEADING_BELOW * standard
        )
