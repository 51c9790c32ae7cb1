"""Lengths of steps: who writes more than others for prompts of the same length is not imitated.

One step too many, in the notation of everybody, has a usual form (``usual_forms.py``), no run of it recurs, and
the answer after it is right. But it takes room, so the steps are longer than those that others write for such a
prompt. That is compared as a mean over an account's latest groups in a family, of their form, in which digits
and words are alike. In families whose steps have one length for a prompt's it is seen after a few groups; where
the length varies with the task, after dozens, and not at all if the account leaves out tasks of long steps.

An account that is set aside loses nothing else: a model may have a longer way of its own.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import log2, sqrt
from statistics import fmean, pvariance
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.screens.pair_counts import LEAST_OTHERS, MAX_PAIRS
from sapo_verification.screens.usual_forms import steps_form
from sapo_verification.types import Pair, VerifiedRollout
from sapo_verification.weighted import at_half_of_the_weight

GROUPS: Final = 64
"""Latest groups of an account in a family that are compared."""

LEAST_GROUPS: Final = 8
"""With fewer it is not judged."""

SURE_ERRORS: Final = 3.0
"""Standard errors by which its mean must be above the bound."""

LONGER: Final = 0.05
"""Part of the usual length by which steps may be longer: policies that learn repeat a step now and then."""

CLASSES_PER_DOUBLING: Final = 16
"""Prompts of about the same length are compared: up to 24 characters each length, then a class for 4 %."""


_Groups = deque[tuple[int, float]]
"""Of each group the class of its prompt's length, and the mean length of its steps."""


class StepLengths:
    """The lengths of the steps of each account's latest groups, by family, with those of their prompts."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Pair, _Groups] = OrderedDict()
        self._weights: Mapping[Account, float] | None = None

    def learn(self, rollout: VerifiedRollout) -> None:
        """Record the mean length of the steps of a verified group's right answers."""
        forms = list(filter(None, map(steps_form, rollout.right)))
        if not forms:
            return
        pair = rollout.account, rollout.task.family
        groups = self._groups.setdefault(pair, deque(maxlen=GROUPS))
        groups.append((_length_class(rollout.prompt), fmean(map(len, forms))))
        self._groups.move_to_end(pair)
        if len(self._groups) > MAX_PAIRS:
            self._groups.popitem(last=False)

    def accounts(self) -> frozenset[Account]:
        """Return the accounts of which there are groups."""
        return frozenset(account for account, _ in self._groups)

    def weigh(self, weights: Mapping[Account, float]) -> None:
        """Compare accounts by these weights from now on, in any unit; an account without one has none."""
        self._weights = weights

    def longer(self) -> frozenset[Pair]:
        """Return the accounts, with the families, whose steps are longer than usual.

        They are surely so in the family, or in another one or over all families, and not surely usual in it.
        """
        by_family: defaultdict[int, dict[Account, _Groups]] = defaultdict(dict)
        for (account, family), groups in self._groups.items():
            by_family[family][account] = groups
        excess: defaultdict[Account, dict[int, list[float]]] = defaultdict(dict)
        for family, each in by_family.items():
            usual = self._usual(each)
            for account, groups in each.items():
                known = [length / usual[prompt] - 1 for prompt, length in groups if prompt in usual]
                excess[account][family] = known
        return frozenset(
            (account, family) for account, families in excess.items() for family in _longer_in(families)
        )

    def _usual(self, groups: Mapping[Account, _Groups]) -> Mapping[int, float]:
        """Return the median account's mean length for prompts of each length that enough accounts had."""
        means: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for account, lengths in groups.items():
            weight = 1.0 if self._weights is None else self._weights.get(account, 0.0)
            by_prompt: defaultdict[int, list[float]] = defaultdict(list)
            for prompt, length in lengths:
                by_prompt[prompt].append(length)
            for prompt, each in by_prompt.items() if weight > 0.0 else ():
                means[prompt].append((fmean(each), weight))
        return {
            prompt: (at_half_of_the_weight(found) + at_half_of_the_weight(found[::-1])) / 2
            for prompt, each in means.items()
            if len(found := sorted(each)) > LEAST_OTHERS
        }


def _longer_in(excess: Mapping[int, Sequence[float]]) -> Iterator[int]:
    """Yield the families in which an account's steps are longer, or may be, because others are, or all."""
    if any(_surely(each, above=True) for each in (list(chain(*excess.values())), *excess.values())):
        yield from (family for family, each in excess.items() if not _surely(each, above=False))


def _surely(excess: Sequence[float], *, above: bool) -> bool:
    """Whether the mean is surely above the bound, or surely below it."""
    if len(excess) < LEAST_GROUPS:
        return False
    error = SURE_ERRORS * sqrt(pvariance(excess) / len(excess))
    return fmean(excess) - error > LONGER if above else fmean(excess) + error < LONGER


def _length_class(prompt: str) -> int:
    return round(CLASSES_PER_DOUBLING * log2(1 + len(prompt)))
