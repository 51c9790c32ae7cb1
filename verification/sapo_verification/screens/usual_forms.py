"""Forms of steps: a stranger's steps are imitated only if most accounts write such steps.

Whoever shows right steps can put signs in front of them or between them, and neither reward nor likelihood
tells these from a notation; a policy that imitates the steps learns them with the rest. So the form of a text
must be usual: of the accounts that show steps in its family, more than half by weight must have shown each of
its runs of four characters, in which every digit is alike, every single letter, and every longer word. What a
minority adds is then not learned, however rare, and whatever its digits are.

Steps of another form wait until they are usual. An account with a notation that few share teaches nothing
there; of a majority that writes nonsense, this screen sees nothing.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.fair_memory import IsNewcomer, nobody
from sapo_verification.screens.pair_counts import MIN_OTHERS, PairCounts
from sapo_verification.screens.run_counts import RUN_CHARACTERS, RunCounts, runs_of
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG
from sapo_verification.types import VerifiedRollout
from sapo_verification.weighted_median import ROUNDING

FADE_GROUPS: Final = 256
"""At this many groups all counts of a pair are halved: a run shown once in them is forgotten."""

WIDTH: Final = 1_024
"""6 KiB of counts per pair. Families have 5 to 60 different runs; an account that shows very many only fills
its own counts."""

_DIGIT: Final = re.compile("[0-9]")
_WORD: Final = re.compile(r"[^\W_#]+")
_EDGE: Final = "\0" * (RUN_CHARACTERS - 1)


def steps_runs(completion: bytes) -> Iterator[str]:
    """Return the runs in the form of an answer's steps, of which the first and last touch its ends."""
    if found := steps_form(completion):
        yield from runs_of(f"{_EDGE}{found}{_EDGE}")


class UsualForms:
    """The forms of steps, or of something else, that other accounts have shown, by family.

    Args:
        key: at most 64 random bytes that no other node knows.
        is_newcomer: see ``FairMemory``.
        runs_of: returns what is compared of a completion, as texts; none if there is nothing.
        min_groups: with fewer an account is not asked what is usual.
        is_odd: whether something of a completion is not usual while too few can be asked, unless prompts of
            its family show it.
    """

    def __init__(
        self,
        key: bytes,
        is_newcomer: IsNewcomer = nobody,
        *,
        runs_of: Callable[[bytes], Iterable[str]] = steps_runs,
        min_groups: int = 1,
        is_odd: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.counts = PairCounts(
            key,
            width=WIDTH,
            fade_groups=FADE_GROUPS,
            min_groups=min_groups,
            is_newcomer=is_newcomer,
        )
        self._runs_of = runs_of
        self._is_odd = is_odd
        self._in_prompts: defaultdict[int, set[str]] = defaultdict(set)
        self._majorities: dict[int, _Majority] = {}

    def learn(self, rollout: VerifiedRollout) -> None:
        """Record the forms of a verified group's right answers."""
        runs = {run for completion in rollout.right for run in self._runs_of(completion)}
        if runs:
            found = self._in_prompts[rollout.task.family]
            asked = rollout.prompt.replace(OPEN_TAG, " ").replace(CLOSE_TAG, " ")
            found.update(filter(self._is_odd, self._runs_of(asked.encode())))
            self.counts.add((rollout.account, rollout.task.family), self.counts.hashed(runs))
            self._majorities.pop(rollout.task.family, None)

    def weigh(self, weights: Mapping[Account, float]) -> None:
        """See ``PairCounts.weigh``."""
        self.counts.weigh(weights)
        self._majorities.clear()

    def is_usual(self, family: int, completion: bytes) -> bool:
        """Whether most accounts write this form; so is an answer without steps.

        Where not even ``MIN_OTHERS`` other accounts can be asked, any form is usual that is not odd.
        """
        if family not in self._majorities:
            compared = self.counts.compared(family).items()
            self._majorities[family] = _Majority(
                [(counts, self.counts.weight(account)) for account, counts in compared]
            )
        majority = self._majorities[family]
        if majority.is_too_small:
            odd = set(filter(self._is_odd, self._runs_of(completion)))
            return odd <= self._in_prompts[family]
        return all(map(majority.has_shown, self.counts.hashed(self._runs_of(completion))))


class _Majority:
    """The accounts of a family with their weights, and which runs most of them have shown."""

    def __init__(self, accounts: Sequence[tuple[RunCounts, float]]) -> None:
        self._accounts = accounts
        self._half = sum(weight for _, weight in accounts) / 2 * (1 + ROUNDING)
        self._has_shown: dict[int, bool] = {}
        self.is_too_small = len(accounts) <= MIN_OTHERS

    def has_shown(self, run: int) -> bool:
        if run not in self._has_shown:
            shown = sum(weight for counts, weight in self._accounts if counts.count(run))
            self._has_shown[run] = shown > self._half
        return self._has_shown[run]


def form(steps: str) -> str:
    """Return steps without white space, with # for each digit, a for a letter, w for a word."""
    signs = _DIGIT.sub("#", steps)
    return "".join(_WORD.sub(lambda word: "w" if len(word[0]) > 1 else "a", signs).split())


def steps_form(completion: bytes) -> str:
    """Return the form of an answer's steps, empty if it has none."""
    steps, found, _ = completion.decode("utf-8", "replace").partition(OPEN_TAG)
    return form(steps) if found else ""
