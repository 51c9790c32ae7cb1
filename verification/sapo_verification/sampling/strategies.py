"""Sampling strategies: the weights by which a node draws accounts and their groups.

A strategy sets weights; it never raises a limit. The shares that follow from them are cut afterwards by the
caps per account, per network and for newcomers (``sampler``), and a group without advantage is always
dropped.

===============  ============================================  ==========================================
name             weight of an account                          weight of one of its groups
===============  ============================================  ==========================================
``uniform``      the same for all that have any reputation     the same for all (the paper's)
``informative``  the same for all that have any reputation     p (1 - p), p the share of right answers
``weighted``     reputation x likelihood of its past groups    halved with every epoch of age
``useful``       reputation x usefulness of its past tasks     halved with every epoch of age
===============  ============================================  ==========================================
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.reputation.evidence import AccountStanding
from sapo_verification.types import AdmittedRollout, VerifiedRollout

GROUPS_IN_MEAN: Final = 32
"""Groups of an account that its running mean covers."""

MIN_MEAN: Final = 0.1
"""Lower bound: an account that is never drawn could never show that its text has changed."""

MAX_ACCOUNTS: Final = 4096
"""Accounts whose mean is kept; the one updated longest ago is dropped."""


@dataclass(frozen=True, slots=True)
class SamplingStrategy:
    """Weights of accounts and groups, before any cap.

    Attributes:
        account: weight of an account, from its reputation (above 0), its likelihood and its usefulness (0 to
            1).
        waiting: weight of a waiting group from its age in epochs; decides which is verified first.
        verified: weight of a verified group; decides which of the compared ones is used.
        looks: informative groups of an account that are verified and compared for one place.
    """

    account: Callable[[float, float, float], float]
    waiting: Callable[[int], float]
    verified: Callable[[VerifiedRollout], float]
    looks: int

    def weigh(
        self, standing: AccountStanding, likelihoods: "AccountMeans", usefulness: "AccountMeans"
    ) -> AccountStanding:
        """Return the standing with this strategy's weights; a weight of 0 stays 0."""
        weights = {
            account: self.account(reputation, likelihoods.of(account), usefulness.of(account))
            if reputation > 0
            else 0.0
            for account, reputation in standing.weights.items()
        }
        return AccountStanding(weights, standing.newcomers)

    def freshness(self, admitted: AdmittedRollout, epoch: int) -> float:
        """Return the weight of a waiting group in an epoch."""
        return self.waiting(max(0, epoch - admitted.rollout.epoch))


class AccountMeans:
    """A running mean by account of a value from 0 to 1.

    It is used for likelihood, the weight of the account's text in this node's steps (stage 12, or 0 for text
    whose gradient does not agree with that of the own groups), and for usefulness, the share of own groups on
    the account's tasks that had an advantage.
    """

    def __init__(self) -> None:
        self._means: OrderedDict[Account, tuple[float, int]] = OrderedDict()

    def learn(self, account: Account, value: float) -> None:
        """Record the value of one of the account's groups, 0 to 1."""
        mean, count = self._means.pop(account, (0.0, 0))
        count = min(count + 1, GROUPS_IN_MEAN)
        self._means[account] = (mean + (value - mean) / count, count)
        if len(self._means) > MAX_ACCOUNTS:
            self._means.popitem(last=False)

    def of(self, account: Account) -> float:
        """Return the mean, at least ``MIN_MEAN``; 1 for an account without a recorded group."""
        return max(MIN_MEAN, self._means.get(account, (1.0, 0))[0])


def _alike(_reputation: float, _likelihood: float, _usefulness: float) -> float:
    return 1.0


def _trusted_and_likely(reputation: float, likelihood: float, _usefulness: float) -> float:
    return reputation * likelihood


def _trusted_and_useful(reputation: float, _likelihood: float, usefulness: float) -> float:
    return reputation * usefulness


def _any_age(_epochs: int) -> float:
    return 1.0


def _halved_by_age(epochs: int) -> float:
    return float(0.5**epochs)


def _any_group(_rollout: VerifiedRollout) -> float:
    return 1.0


def _spread(rollout: VerifiedRollout) -> float:
    """Return p (1 - p), which is greatest where half of the answers are right."""
    return rollout.mean_reward * (1.0 - rollout.mean_reward)


STRATEGIES: Final[Mapping[str, SamplingStrategy]] = {
    "uniform": SamplingStrategy(_alike, _any_age, _any_group, looks=1),
    "informative": SamplingStrategy(_alike, _any_age, _spread, looks=4),
    "weighted": SamplingStrategy(_trusted_and_likely, _halved_by_age, _any_group, looks=1),
    "useful": SamplingStrategy(_trusted_and_useful, _halved_by_age, _any_group, looks=1),
}
