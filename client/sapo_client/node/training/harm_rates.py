"""Whose text is used after others' text has done harm of which nobody knows the author.

A comparison of the policy with its shadow ends with harm or without. Which accounts' text was trained in each
of the last comparisons says who may have done it: an account's *harm rate* is the probability with which a
comparison in which its text is trained ends with harm because of it. Rates are estimated together from all
these comparisons (a noisy-or model, by expectation maximisation), so that an account whose text was trained
in harmless ones takes less of the blame for the others.

That needs comparisons without some of the accounts. So after harm, accounts are admitted in a random order,
those with low rates first, until their rates add up to ``MAX_EXPECTED_HARM``; the others wait. The draw is
repeated after each comparison. Nobody outside knows whose text is used, so an account that waits for its
moment cannot choose who is blamed beside it. The order of harm does not matter: attackers that harm in turns
or seldom have higher rates than accounts that were trained as often.

New accounts are admitted by a lot, with the lower a chance the more often accounts did harm in their first
comparisons.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from typing import Final, NamedTuple

from sapo_protocol.identifiers import Account

MAX_EXPECTED_HARM: Final = 0.25
"""Sum of the admitted accounts' rates: about one comparison in four ends with harm, at most."""

MAX_COMPARISONS: Final = 64
"""Last comparisons that are remembered."""

FADING: Final = 0.97
"""Weight of a comparison, as a part of that of the next one: who did harm may have changed."""

IDLE_FADING: Final = 0.9
"""The same if the next one is a check before which no text was trained, since all accounts wait: the only one
that teaches is back after thirteen of them if harm was blamed on it once, after 34 if ten times."""

PRIOR_HARM: Final = 0.05
PRIOR_COMPARISONS: Final = 1.0
"""Harm, in so many comparisons, that is added to what was found of each account: a new one takes more of the
blame than one that has taught for long."""

MAX_RATE: Final = 0.98
MIN_RATE: Final = 1e-9

NEW_COMPARISONS: Final = 3
"""First comparisons of an account that say what is to be expected of new ones."""

MAX_ACCOUNTS: Final = 1024
"""Accounts that are remembered; beyond it those that were trained first are forgotten."""

_STEPS: Final = 12
"""Of the expectation maximisation."""


class PastComparison(NamedTuple):
    """A comparison that has ended.

    Attributes:
        accounts: whose text was trained, or held by the learner, in a fixed order.
        has_harmed: whether reward or a family was lost.
    """

    accounts: tuple[Account, ...]
    has_harmed: bool


@dataclass(frozen=True, slots=True)
class HarmRates:
    """Accounts whose text was trained, and what came of it.

    Attributes:
        used: accounts whose text the learner holds: trained since they were admitted, also if they have left.
            The first ones first.
        comparisons: the last comparisons, the oldest first. Without harm among them, there may be fewer.
        waiting: accounts that are not admitted.
        new_chance: probability with which a new account is admitted.
        lot: a number that only this node knows, for the lots of new accounts.
    """

    used: tuple[Account, ...] = ()
    comparisons: tuple[PastComparison, ...] = ()
    waiting: frozenset[Account] = frozenset()
    new_chance: float = 1.0
    lot: int = 0

    def using(self, accounts: Iterable[Account]) -> HarmRates:
        """Return the state after text of these accounts was trained."""
        new = dict.fromkeys(accounts)
        used = (*(each for each in self.used if each not in new), *new)
        return replace(self, used=used[-MAX_ACCOUNTS:])

    def admission(self) -> Callable[[Account], bool]:
        """Return what tells whether text of an account may be used."""
        known = frozenset(self.used).union(*(comparison.accounts for comparison in self.comparisons))

        def admits(account: Account) -> bool:
            if account in known or self.new_chance >= 1.0:
                return account not in self.waiting
            drawn = sha256(b"sapo new account %d " % self.lot + bytes(account)).digest()
            return int.from_bytes(drawn[:8], "big") < self.new_chance * 2.0**64

        return admits

    def ended(self, rng: random.Random, *, has_harmed: bool) -> HarmRates:
        """Return the state after a comparison has ended, with other accounts admitted.

        Args:
            rng: draws them; others cannot predict it.
        """
        return self._after(PastComparison(tuple(sorted(self.used)), has_harmed), rng)

    def idle(self, rng: random.Random) -> HarmRates:
        """Return the state after a check before which no text was trained: accounts that wait are nearer to
        being admitted."""
        return self._after(PastComparison((), has_harmed=False), rng)

    def rates(self) -> dict[Account, float]:
        """Return the rates of all accounts that are remembered."""
        return _estimated(self.comparisons)[0]

    def _after(self, comparison: PastComparison, rng: random.Random) -> HarmRates:
        comparisons = (*self.comparisons, comparison)[-MAX_COMPARISONS:]
        if not any(each.has_harmed for each in comparisons):
            return HarmRates(self.used, _bounded(comparisons))
        rates, of_new = _estimated(comparisons)
        waiting, left = set[Account](), MAX_EXPECTED_HARM
        keys = {account: rng.expovariate(1.0) * rates[account] for account in sorted(rates)}
        for account in sorted(rates, key=keys.__getitem__):
            if rates[account] <= left:
                left -= rates[account]
            else:
                waiting.add(account)
        held = tuple(each for each in self.used if each not in waiting)
        usual = PRIOR_HARM / PRIOR_COMPARISONS
        return HarmRates(
            held, _bounded(comparisons), frozenset(waiting), min(1.0, usual / of_new), rng.getrandbits(64)
        )


def _bounded(comparisons: Sequence[PastComparison]) -> tuple[PastComparison, ...]:
    """Return the comparisons without the accounts that were trained longest ago, if there are too many."""
    last = dict.fromkeys(account for comparison in reversed(comparisons) for account in comparison.accounts)
    if len(last) <= MAX_ACCOUNTS:
        return tuple(comparisons)
    kept = frozenset(list(last)[:MAX_ACCOUNTS])
    return tuple(
        PastComparison(tuple(each for each in comparison.accounts if each in kept), comparison.has_harmed)
        for comparison in comparisons
    )


def _estimated(comparisons: Sequence[PastComparison]) -> tuple[dict[Account, float], float]:
    """Return each account's rate, and that of accounts in their first comparisons."""
    weights = _weights(comparisons)
    newcomers = [frozenset(new) for new in _new(comparisons)]
    trained = defaultdict[Account, float](float)
    for comparison, weight in zip(comparisons, weights, strict=True):
        for account in comparison.accounts:
            trained[account] += weight
    rates = {account: _rate(0.0, count) for account, count in trained.items()}
    harm_of_new = 0.0
    for _ in range(_STEPS):
        harm = dict.fromkeys(trained, 0.0)
        harm_of_new = 0.0
        for comparison, weight, new in zip(comparisons, weights, newcomers, strict=True):
            if comparison.has_harmed:
                for account, part in _blame(comparison, rates):
                    harm[account] += weight * part
                    harm_of_new += weight * part if account in new else 0.0
        rates = {account: _rate(harm[account], count) for account, count in trained.items()}
    count_of_new = sum(weight * len(new) for weight, new in zip(weights, newcomers, strict=True))
    return rates, _rate(harm_of_new, count_of_new)


def _weights(comparisons: Sequence[PastComparison]) -> list[float]:
    """Return the weight of each comparison; that of the last one is 1."""
    found = [1.0]
    for later in reversed(comparisons[1:]):
        found.append(found[-1] * (FADING if later.accounts else IDLE_FADING))
    return found[::-1]


def _new(comparisons: Sequence[PastComparison]) -> Iterator[list[Account]]:
    """Yield for each comparison the accounts that are in one of their first ``NEW_COMPARISONS``."""
    seen = Counter[Account]()
    for comparison in comparisons:
        yield [account for account in comparison.accounts if seen[account] < NEW_COMPARISONS]
        seen.update(comparison.accounts)


def _blame(comparison: PastComparison, rates: Mapping[Account, float]) -> Iterator[tuple[Account, float]]:
    """Yield the probability with which each account did the harm of a comparison, given that somebody did."""
    happens = 1.0 - prod(1.0 - rates[account] for account in comparison.accounts)
    for account in comparison.accounts:
        yield account, min(1.0, rates[account] / max(happens, MIN_RATE))


def _rate(harm: float, comparisons: float) -> float:
    return min(MAX_RATE, (PRIOR_HARM + harm) / (PRIOR_COMPARISONS + comparisons))
