"""Runs of characters that recur in an account's text for different tasks, and not in that of most others.

A phrase beside every right answer is learned with it within forty steps (arXiv 2511.09780), and no checker
notices it; where only steps of numbers and signs are imitated (``imitation.py``) it can be made of these:
"2+2=5" in front of right steps. But steps follow from their task, and a phrase does not, so it recurs. Runs
of four characters are counted per account and family in the text beside right answers. What recurs with most
accounts is a property of the family; they weigh as much as in a batch, so that a flood of new ones does not
decide what is usual. An account whose own runs recur is set aside in the family (stage 13), as one whose
steps mislead (``sampling/step_values.py``). It is no evidence against it: a model may have its own style.

A phrase of which no wording recurs, a new false sum each time, is not seen. Where known accounts have more
pairs than there is room for, they take turns: who was found stays set aside until it was looked at again.
"""

from collections import Counter
from collections.abc import Mapping, Set
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.fair_memory import IsNewcomer, nobody
from sapo_verification.screens.pair_counts import MIN_OTHERS, PairCounts
from sapo_verification.screens.run_counts import RunCounts, runs_of
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG
from sapo_verification.types import Pair, VerifiedRollout
from sapo_verification.weighted_median import weighted_median

FADE_GROUPS: Final = 64
"""At this many groups all counts of a pair are halved."""

MIN_GROUPS: Final = 8
"""With fewer, an account is not compared, nor are others compared with it."""

FREQUENT: Final = 0.25
"""A run that a smaller share of the groups holds may be frequent in a notation of the account's own."""

SURE_COUNT: Final = 7
SURE_RATIO: Final = 6
"""A run recurs if more groups hold it than this count and this many times what the median account has. Each
text has dozens of runs, so that what is rare by chance happens."""

CLEAN_GROUPS: Final = 16
"""Groups in a row without such a run, after which an account's steps are trained again."""

MAX_SET_ASIDE: Final = 16_384
"""Pairs of account and family that are set aside, with and without a place; beyond it the one that was found
first is forgotten."""

WIDTH: Final = 4_096
"""12 KiB of counts per pair; sixty-four texts of forty runs are 2,560 different ones at the most."""


class RecurringRuns:
    """The runs of other accounts' text by family, and which accounts repeat themselves.

    Args:
        key: at most 64 random bytes that no other node knows.
        is_newcomer: see ``FairMemory``.
    """

    def __init__(self, key: bytes, is_newcomer: IsNewcomer = nobody) -> None:
        self.counts = PairCounts(
            key,
            width=WIDTH,
            fade_groups=FADE_GROUPS,
            min_groups=MIN_GROUPS,
            is_newcomer=is_newcomer,
            in_turns=True,
        )
        self._is_newcomer = is_newcomer
        self._set_aside: Counter[Pair] = Counter()

    def learn(self, rollout: VerifiedRollout) -> None:
        """Count the runs of one of a group's right answers, and compare them with other accounts'."""
        runs = self._runs(rollout)
        if not runs:
            return
        pair = rollout.account, rollout.task.family
        counts, dropped = self.counts.add(pair, runs)
        if self._recurs(pair, counts, runs):
            self._set_aside[pair] = CLEAN_GROUPS
        elif pair in self._set_aside and counts.groups >= MIN_GROUPS:  # fewer, as without a place, show none
            self._set_aside[pair] -= 1
            if not self._set_aside[pair]:
                del self._set_aside[pair]
        if dropped and self._is_newcomer(dropped[0]):
            del self._set_aside[dropped]
        if len(self._set_aside) > MAX_SET_ASIDE:
            del self._set_aside[next(iter(self._set_aside))]

    def set_aside(self) -> frozenset[Pair]:
        """Return the accounts, with the families, whose steps hold a run that recurs."""
        return frozenset(self._set_aside)

    def holds(self, account: Account, family: int) -> bool:
        """Whether an account is set aside in a family."""
        return (account, family) in self._set_aside

    def _recurs(self, pair: Pair, counts: RunCounts, runs: Set[int]) -> bool:
        least = max(SURE_COUNT, FREQUENT * counts.groups)
        frequent = {run: count for run in runs if (count := counts.count(run)) > least}
        if not frequent:
            return False
        compared = self.counts.compared(pair[1])
        if len(compared) - (pair[0] in compared) < MIN_OTHERS:
            return False
        return any(
            count > SURE_COUNT + SURE_RATIO * counts.groups * self._usual_share(run, compared)
            for run, count in frequent.items()
        )

    def _usual_share(self, run: int, compared: Mapping[Account, RunCounts]) -> float:
        """Return the weighted median of the accounts' shares of a run, of two middle ones the larger."""
        shares = [(counts.share(run), self.counts.weight(account)) for account, counts in compared.items()]
        return weighted_median(sorted(shares, reverse=True))

    def _runs(self, rollout: VerifiedRollout) -> frozenset[int]:
        """Return the different runs in the text beside one right answer, which its author cannot choose."""
        chosen = min(rollout.right, key=self.counts.hash, default=b"")
        before, found, rest = chosen.decode("utf-8", "replace").partition(OPEN_TAG)
        beside = before + rest.partition(CLOSE_TAG)[2] if found else ""
        return self.counts.hashed(runs_of("".join(beside.casefold().split())))
