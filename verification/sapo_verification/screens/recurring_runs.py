"""Runs of characters that recur in an account's text for different tasks, and not in that of most others.

A phrase beside every right answer is learned with it within forty steps (arXiv 2511.09780), and no checker
notices it; where only steps of numbers and signs are imitated (``imitation.py``) it can be made of these:
"2+2=5" in front of right steps. But steps follow from their task, and a phrase does not, so it recurs. Runs
of four characters are counted per account and family in the text beside right answers. What recurs with most
accounts is a property of the family; they weigh as much as in a batch, so that a flood of new ones does not
decide what is usual. An account whose own runs recur is set aside in the family (stage 13), as one whose
steps mislead (``sampling/step_values.py``). It is no evidence against it: a model may have its own style.

A phrase of which no wording recurs, a new false sum each time, is not seen.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Set
from hashlib import blake2b
from heapq import nlargest
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.screens.run_counts import RunCounts
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG
from sapo_verification.types import Pair, VerifiedRollout
from sapo_verification.weighted import at_half_of_the_weight

RUN_CHARACTERS: Final = 4
"""Without white space and case. Three digits recur by chance too often to tell."""

FADE_GROUPS: Final = 64
"""At so many groups all counts of a pair are halved."""

LEAST_GROUPS: Final = 8
"""With fewer, an account is not compared, nor are others compared with it."""

LEAST_OTHERS: Final = 3
"""Other accounts with which one is compared; with fewer it is not."""

MOST_COMPARED: Final = 32
"""Accounts in a median, those that weigh most."""

FREQUENT: Final = 0.25
"""A run that a smaller share of the groups holds may be frequent in a notation of the account's own."""

SURE_COUNT: Final = 7
SURE_RATIO: Final = 6
"""A run recurs if more groups hold it than this count and so many times what the median account has. Each
text has dozens of runs, so that what is rare by chance happens."""

CLEAN_GROUPS: Final = 16
"""Groups in a row without such a run, after which an account's steps are trained again."""

MOST_RUNS: Final = 1024
"""Counted per text, a keyed sample of those of a longer one."""

WIDTH: Final = 4_096
"""24 KiB of counts per pair; sixty-four texts of forty runs are 2,560 different ones at the most."""

MAX_PAIRS: Final = 512
"""Pairs of account and family; the one heard longest ago is dropped."""


class RecurringRuns:
    """The runs of other accounts' text by family, and which accounts repeat themselves.

    Args:
        key: at most 64 random bytes that no other node knows.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sketches: OrderedDict[Pair, RunCounts] = OrderedDict()
        self._set_aside: Counter[Pair] = Counter()
        self._weights: Mapping[Account, float] | None = None

    def learn(self, rollout: VerifiedRollout) -> None:
        """Count the runs of one of a group's right answers, and compare them with other accounts'."""
        runs = self._runs(rollout)
        if not runs:
            return
        pair = rollout.account, rollout.task.family
        sketch = self._sketches.setdefault(pair, RunCounts(WIDTH, FADE_GROUPS))
        self._sketches.move_to_end(pair)
        sketch.add(runs)
        if self._recurs(pair, sketch, runs):
            self._set_aside[pair] = CLEAN_GROUPS
        elif pair in self._set_aside:
            self._set_aside[pair] -= 1
            if not self._set_aside[pair]:
                del self._set_aside[pair]
        if len(self._sketches) > MAX_PAIRS:
            dropped, _ = self._sketches.popitem(last=False)
            del self._set_aside[dropped]

    def weigh(self, weights: Mapping[Account, float]) -> None:
        """Compare with accounts by these weights from now on, in any unit; an account without one has none.

        Until the first call all are equal.
        """
        self._weights = weights

    def accounts(self) -> frozenset[Account]:
        """Return the accounts whose runs are counted."""
        return frozenset(account for account, _ in self._sketches)

    def set_aside(self) -> frozenset[Pair]:
        """Return the accounts, with the families, whose steps hold a run that recurs."""
        return frozenset(self._set_aside)

    def holds(self, account: Account, family: int) -> bool:
        """Whether an account is set aside in a family."""
        return (account, family) in self._set_aside

    def _recurs(self, pair: Pair, sketch: RunCounts, runs: Set[int]) -> bool:
        if sketch.groups < LEAST_GROUPS:
            return False
        least = max(SURE_COUNT, FREQUENT * sketch.groups)
        frequent = {run: count for run in runs if (count := sketch.count(run)) > least}
        if not frequent:
            return False
        known = self._known(pair[1])
        if len(known) - (pair[0] in known) < LEAST_OTHERS:
            return False
        return any(
            count > SURE_COUNT + SURE_RATIO * sketch.groups * self._usual_share(run, known)
            for run, count in frequent.items()
        )

    def _known(self, family: int) -> dict[Account, RunCounts]:
        """Return the sketches with which one is compared: of accounts that weigh most, at most so many."""
        known = {
            account: sketch
            for (account, each), sketch in self._sketches.items()
            if each == family and sketch.groups >= LEAST_GROUPS and self._weight(account) > 0.0
        }
        if len(known) <= MOST_COMPARED:
            return known
        chosen = nlargest(MOST_COMPARED, known, lambda account: (self._weight(account), self._hash(account)))
        return {account: known[account] for account in chosen}

    def _usual_share(self, run: int, known: Mapping[Account, RunCounts]) -> float:
        """Return the weighted median of the accounts' shares of a run, of two middle ones the larger."""
        shares = [(sketch.share(run), self._weight(account)) for account, sketch in known.items()]
        return at_half_of_the_weight(sorted(shares, reverse=True))

    def _weight(self, account: Account) -> float:
        return 1.0 if self._weights is None else self._weights.get(account, 0.0)

    def _runs(self, rollout: VerifiedRollout) -> frozenset[int]:
        """Return the different runs in the text beside one right answer, which its author cannot choose."""
        right = (
            completion
            for completion, reward in zip(rollout.completions, rollout.rewards, strict=True)
            if reward == 1.0
        )
        chosen = min(right, key=self._hash, default=b"")
        before, found, rest = chosen.decode("utf-8", "replace").partition(OPEN_TAG)
        beside = before + rest.partition(CLOSE_TAG)[2] if found else ""
        signs = "".join(beside.casefold().split())
        runs = {signs[at : at + RUN_CHARACTERS] for at in range(len(signs) - RUN_CHARACTERS + 1)}
        return frozenset(sorted(self._hash(run.encode()) for run in runs)[:MOST_RUNS])

    def _hash(self, text: bytes) -> int:
        return int.from_bytes(blake2b(text, digest_size=8, key=self._key).digest(), "big")
