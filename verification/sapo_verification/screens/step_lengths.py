"""Lengths of steps: accounts that write more than others for prompts of the same length are not imitated.

One step too many, in the notation of everybody, has a usual form (``usual_forms.py``), no run of it recurs,
and the answer after it is right. But it takes room: the steps are longer than those that others write for
such a prompt. The mean over an account's latest groups in a family is taken, of the form of the steps, in
which words are alike. The account is set aside if its mean is surely above those of accounts that have more
than half of the weight, so that others who write short steps do not make it look long. Those do not count
whose steps depend much less on their prompts than its own (``sampling/step_values.py``): such steps may be
shorter than right ones.

Where the length of steps follows from the prompt's, a few groups tell, and each text is judged by itself as
well: one that is longer waits, whatever its account writes otherwise. Where it varies with the task, dozens
tell, and nothing of an account that adds to short steps only.

It is no evidence against an account: a model may have a longer way of its own.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from math import hypot, inf, log2, sqrt
from statistics import fmean, median, pvariance
from typing import Final, NamedTuple

from sapo_protocol.identifiers import Account
from sapo_verification.fair_memory import FairMemory, IsNewcomer, nobody
from sapo_verification.screens.pair_counts import MIN_OTHERS, TURN_GROUPS, Turns, heaviest, pair_memory
from sapo_verification.screens.usual_forms import steps_form
from sapo_verification.types import Pair, VerifiedRollout
from sapo_verification.weighted_median import ROUNDING, weighted_median

GROUPS: Final = 64
"""Latest groups of an account in a family that are compared."""

MIN_GROUPS: Final = 8
"""With fewer it is not compared, nor are others compared with it."""

MAX_FOUND: Final = 16_384
"""Pairs without a place that are remembered as longer than usual; the one found first is forgotten."""

SURE_ERRORS: Final = 3.0
"""Standard errors by which two means must differ from what is allowed."""

LONGER: Final = 0.05
"""Part of the usual length by which steps may be longer: policies that learn repeat a step now and then."""

CLASSES_PER_DOUBLING: Final = 16
"""Prompts of about the same length are compared: up to 24 characters of the same, above within 4 %."""

FOLLOWS: Final = 0.7
"""Part of the median account's groups within ``LONGER`` of the usual length, where it follows from the
prompt's."""


DependsLess = Callable[[int, Account, Account], bool]
"""Whether in a family, by its index, an account's steps depend much less on their prompts than another's."""


class _Group(NamedTuple):
    """The class of a prompt's length, and the lengths of the steps of a group's right answers."""

    prompt: int
    mean: float
    median: float


_Groups = deque[_Group]
_Lengths = Sequence[tuple[int, float]]
"""Lengths of steps, each with the class of its prompt's length."""


class _Excess(NamedTuple):
    """By how much an account's steps are longer than usual, as a part of the usual length."""

    mean: float
    error: float
    weight: float


@dataclass(frozen=True, slots=True)
class _Comparison:
    """An account beside the others of a family.

    Attributes:
        weights: of those that it is compared with.
        longer_than: those than which its steps are surely longer.
        not_longer_than: those than which they surely are not.
    """

    weights: Mapping[Account, float]
    longer_than: frozenset[Account]
    not_longer_than: frozenset[Account]

    def is_most(self, accounts: Set[Account]) -> bool:
        """Whether some accounts have more than half of the weight of those that one is compared with."""
        found = sum(weight for account, weight in self.weights.items() if account in accounts)
        return found > sum(self.weights.values()) / 2 * (1 + ROUNDING)


class StepLengths:
    """The lengths of the steps of each account's latest groups, by family, with those of their prompts.

    Args:
        key: at most 64 random bytes that no other node knows.
        is_newcomer: see ``FairMemory``.
    """

    def __init__(self, key: bytes, is_newcomer: IsNewcomer = nobody) -> None:
        self._key = key
        self._is_newcomer = is_newcomer
        self._turns = Turns()
        self._groups: FairMemory[Pair, _Groups] = pair_memory(
            lambda: deque(maxlen=GROUPS), is_newcomer, key, self._turns
        )
        self._longer: frozenset[Pair] = frozenset()
        self._found: OrderedDict[Pair, None] = OrderedDict()
        """Pairs that were longer when they made room; they are until they were compared again."""
        self._limits: dict[int, Mapping[int, float]] = {}

    def learn(self, rollout: VerifiedRollout) -> None:
        """Record the lengths of the steps of a verified group's right answers."""
        lengths = [len(form) for form in map(steps_form, rollout.right) if form]
        if not lengths:
            return
        pair = rollout.account, rollout.task.family
        groups, dropped = self._groups.touch(pair)
        groups.append(_Group(_length_class(rollout.prompt), fmean(lengths), median(lengths)))
        self._turns.note(pair, dropped, is_over=len(groups) == TURN_GROUPS)
        if dropped in self._longer and not self._is_newcomer(dropped[0]):
            self._found[dropped] = None
            if len(self._found) > MAX_FOUND:
                self._found.popitem(last=False)

    def accounts(self) -> frozenset[Account]:
        """Return the accounts whose lengths are remembered."""
        return frozenset(account for account, _ in self._groups)

    def weigh(self, weights: Mapping[Account, float], depends_less: DependsLess) -> None:
        """Compare the accounts, with these weights in any unit; an account without one has none.

        Args:
            weights: by account.
            depends_less: an account does not count for another one than which it depends less.
        """
        by_family: defaultdict[int, dict[Account, _Groups]] = defaultdict(dict)
        for (account, family), groups in self._groups.items():
            by_family[family][account] = groups
        self._limits = {family: _limits(each, weights) for family, each in by_family.items()}
        compared: dict[int, dict[Account, _Comparison]] = {}
        for family, each in by_family.items():
            excesses = _excesses(each, weights)
            compared[family] = _compared(each, excesses, self._key, partial(depends_less, family))
        longer = {
            (account, family) for account, family in self._groups if _is_longer(account, family, compared)
        }
        for pair in [pair for pair in self._found if len(self._groups.get(pair) or ()) >= MIN_GROUPS]:
            del self._found[pair]
        self._longer = frozenset(longer | self._found.keys())

    def longer(self) -> frozenset[Pair]:
        """Return the accounts, with the families, whose steps were longer than usual when last compared.

        They are surely so in the family, or in another one and not surely usual in it: then those than which
        they are longer there have more than half of the weight here as well.
        """
        return self._longer

    def is_usual(self, family: int, prompt: str, completion: bytes) -> bool:
        """Whether steps are no longer than usual for such a prompt, where their length follows from its own.

        Elsewhere, and for prompts that few accounts had, any length is usual.
        """
        limit = self._limits.get(family, {}).get(_length_class(prompt), inf)
        return len(steps_form(completion)) <= limit


def _excesses(groups: Mapping[Account, _Groups], weights: Mapping[Account, float]) -> dict[Account, _Excess]:
    """Return how much longer than usual the steps of each account are that has enough groups in a family."""
    lengths = {account: [(each.prompt, each.mean) for each in own] for account, own in groups.items()}
    parts = _parts(lengths, _usual(lengths, weights, fmean))
    return {
        account: _Excess(fmean(own), sqrt(pvariance(own) / len(own)), weights.get(account, 0.0))
        for account, own in parts.items()
    }


def _limits(groups: Mapping[Account, _Groups], weights: Mapping[Account, float]) -> Mapping[int, float]:
    """Return how long steps may be for prompts of each length; none if their length follows from more.

    Medians are compared, of each group and of an account's groups: policies repeat a step now and then.
    """
    lengths = {account: [(each.prompt, each.median) for each in own] for account, own in groups.items()}
    usual = _usual(lengths, weights, median)
    near = sorted(
        (fmean(abs(part) <= LONGER for part in own), weights[account])
        for account, own in _parts(lengths, usual).items()
        if weights.get(account)
    )
    if len(near) <= MIN_OTHERS or weighted_median(near) < FOLLOWS:
        return {}
    return {prompt: (1 + LONGER) * length for prompt, length in usual.items()}


def _parts(lengths: Mapping[Account, _Lengths], usual: Mapping[int, float]) -> Mapping[Account, list[float]]:
    """Return by how much each length is above the usual one, as a part of it, of accounts with enough."""
    found = {
        account: [length / usual[prompt] - 1 for prompt, length in own if prompt in usual]
        for account, own in lengths.items()
    }
    return {account: parts for account, parts in found.items() if len(parts) >= MIN_GROUPS}


def _usual(
    lengths: Mapping[Account, _Lengths],
    weights: Mapping[Account, float],
    average: Callable[[Sequence[float]], float],
) -> Mapping[int, float]:
    """Return the median account's average length for prompts of each length that enough accounts had."""
    averages: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for account, own in lengths.items():
        by_prompt: defaultdict[int, list[float]] = defaultdict(list)
        for prompt, length in own if weights.get(account) else ():
            by_prompt[prompt].append(length)
        for prompt, each in by_prompt.items():
            averages[prompt].append((average(each), weights[account]))
    return {
        prompt: weighted_median(sorted(each)) for prompt, each in averages.items() if len(each) > MIN_OTHERS
    }


def _compared(
    accounts: Iterable[Account],
    excesses: Mapping[Account, _Excess],
    key: bytes,
    depends_less: Callable[[Account, Account], bool],
) -> dict[Account, _Comparison]:
    """Compare each account of a family with the others that have enough groups, if they are enough."""
    weights = {account: each.weight for account, each in excesses.items() if each.weight > 0.0}
    chosen = heaviest(weights, key)
    compared = {}
    for account in accounts:
        counted = [other for other in chosen if other != account and not depends_less(other, account)]
        if len(counted) >= MIN_OTHERS:
            own, others = excesses.get(account), {other: excesses[other] for other in counted}
            compared[account] = _Comparison(
                {other: weights[other] for other in counted},
                longer_than=_surely(own, others, longer=True),
                not_longer_than=_surely(own, others, longer=False),
            )
    return compared


def _is_longer(account: Account, family: int, compared: Mapping[int, Mapping[Account, _Comparison]]) -> bool:
    """Whether an account is surely longer in a family, or elsewhere than most of those who show this one."""
    here = compared[family].get(account)
    if here is None or here.is_most(here.not_longer_than):
        return False
    return any(
        there.is_most(there.longer_than) and here.is_most(there.longer_than)
        for there in (each[account] for each in compared.values() if account in each)
    )


def _surely(own: _Excess | None, others: Mapping[Account, _Excess], *, longer: bool) -> frozenset[Account]:
    """Return those than which one is surely longer, or surely not; none if it has too few groups."""
    if own is None:
        return frozenset()
    sign = 1 if longer else -1
    return frozenset(
        account
        for account, other in others.items()
        if sign * (own.mean - other.mean - LONGER) > SURE_ERRORS * hypot(own.error, other.error)
    )


def _length_class(prompt: str) -> int:
    return round(CLASSES_PER_DOUBLING * log2(1 + len(prompt)))
