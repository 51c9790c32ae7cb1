"""Planted phrases (stage 13): frequent in the text of one account, rare in that of all others.

A phrase in every rewarded completion is learned within forty steps (arXiv 2511.09780), and no checker notices
it. So runs of four words are counted per account and family, in sketches of fixed size whose counts decay. A
run is suspicious if 30 % of an account's groups hold it and fewer than 2 % of the median other account's. The
median is used because a flood of one account must neither make a phrase look common nor hide it. Groups that
hold such a run are not sampled. It is no evidence against the author: a model may have its own style.

Where many accounts stand out, the swarm mixes different models and these are styles, not planted phrases:
then no group is quarantined. If more than half of the accounts plant one phrase, it is not detected here at
all; against that there are the caps on newcomers and accounts.
"""

from collections import OrderedDict
from collections.abc import Sequence
from statistics import median
from typing import Final

from sapo_protocol.suite import Family
from sapo_verification.screens.run_counts import RunCounts
from sapo_verification.tasks.text_policy import reasoning
from sapo_verification.tasks.words import window_hashes, words_of
from sapo_verification.types import Pair, VerifiedRollout

PHRASE_WORDS: Final = 4
FREQUENT: Final = 0.30
RARE: Final = 0.02

LEAST_GROUPS: Final = 32
"""With fewer groups a share of 30 % is chance."""

LEAST_OTHERS: Final = 3
"""Other accounts in the family with as many groups; fewer are too few to compare with."""

MOST_CONSPICUOUS: Final = 0.25
"""If a larger share of the accounts stands out, the swarm mixes different models."""

FADE_GROUPS: Final = 256
"""At so many groups all counts are halved."""

MOST_WINDOWS: Final = 4096
"""Counted per group; a group of full size has three times as many, and a keyed sample of them is counted."""

WIDTH: Final = 32_768
"""192 KiB of counts per account and family. A hundred thousand different runs are overcounted by less than
1 % of 256 groups."""

MOST_SKETCHES: Final = 64


class Phrases:
    """The runs of words that accounts use, family by family.

    Args:
        key: at most 64 random bytes that no other node knows.
    """

    def __init__(self, families: Sequence[Family], key: bytes, most_sketches: int = MOST_SKETCHES) -> None:
        self._families = families
        self._key = key
        self._most_sketches = most_sketches
        self._sketches: OrderedDict[Pair, RunCounts] = OrderedDict()
        self._conspicuous: set[Pair] = set()

    def learn(self, rollout: VerifiedRollout) -> None:
        """Record the runs of a verified group; call it once for each group."""
        runs = self._runs(rollout)
        if not runs:
            return
        key = _key(rollout)
        self._sketches.setdefault(key, RunCounts(WIDTH, FADE_GROUPS)).add(runs)
        self._sketches.move_to_end(key)
        if len(self._sketches) > self._most_sketches:
            forgotten, _ = self._sketches.popitem(last=False)
            self._conspicuous.discard(forgotten)

    def planted(self, rollout: VerifiedRollout) -> bool:
        """Whether a group holds a phrase that its account seems to have planted."""
        key = _key(rollout)
        others = [sketch for other, sketch in self._known(key[1]) if other != key]
        mine = self._sketches.get(key)
        if mine is None or mine.groups < LEAST_GROUPS or len(others) < LEAST_OTHERS:
            return False
        stands_out = any(
            mine.share(run) >= FREQUENT and median(other.share(run) for other in others) < RARE
            for run in self._runs(rollout)
        )
        (self._conspicuous.add if stands_out else self._conspicuous.discard)(key)
        return stands_out and self._is_one_of_few(key[1])

    def _known(self, family: int) -> list[tuple[Pair, RunCounts]]:
        """Return the sketches of a family that cover at least ``LEAST_GROUPS`` groups."""
        return [
            (key, sketch)
            for key, sketch in self._sketches.items()
            if key[1] == family and sketch.groups >= LEAST_GROUPS
        ]

    def _is_one_of_few(self, family: int) -> bool:
        conspicuous = sum(1 for _, other in self._conspicuous if other == family)
        return conspicuous <= MOST_CONSPICUOUS * len(self._known(family))

    def _runs(self, rollout: VerifiedRollout) -> list[int]:
        """Return the different runs of words beside the answers of a group, at most ``MOST_WINDOWS``."""
        family = self._families[rollout.task.family]
        runs: set[int] = set()
        for completion in rollout.completions:
            words = words_of(reasoning(family, completion))
            runs |= window_hashes(words, PHRASE_WORDS, self._key)
        return sorted(runs)[:MOST_WINDOWS]


def _key(rollout: VerifiedRollout) -> Pair:
    return rollout.account, rollout.task.family
