"""Parts of a stranger's right answer that may be imitated: numbers and signs, but no prose of its author.

A policy that imitates a text learns all of it, and a phrase beside the right answer costs nobody a reward: no
checker and no canary notices it. So strangers may teach steps, but not wording. A text is imitated whole if
its words are known here, that is if each word

* is a number, a mathematical sign, a single letter, or digits with at most two letters between them, or
* occurs in the prompts of the task's family, which this node derived itself, or
* stands in a run of three words that this node's own policy has written in the family.

Of any other text only the answer is imitated: what every node could have from the generator, and nothing that
its author composed. White space around the answer, and text behind it, is always dropped, and of several
spaces in a row only the first is shown.

The screen says nothing about numbers: wrong steps with a right answer pass it, and so does a phrase of signs
(``recurring_runs.py``).
"""

import re
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Final
from unicodedata import category

from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Family
from sapo_verification.observer import Observer
from sapo_verification.tasks.answers import WHITESPACE
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG, reasoning
from sapo_verification.tasks.words import words_of
from sapo_verification.types import VerifiedRollout

RUN_WORDS: Final = 3

MAX_WORDS: Final = 16_384
"""Words known from the prompts of a family; families with a larger vocabulary are taught by answers alone."""

MAX_RUNS: Final = 131_072
"""Own runs per family; the one used longest ago is forgotten."""

MATHEMATICAL: Final = ("Sm", "No")
"""Unicode's categories of mathematical signs, and of fractions and superscripts; letters and digits of other
scripts are none of these."""

_SIGN: Final = re.compile(r"[a-z]|(?:[a-z]{0,2}[0-9])+[a-z]{0,2}", re.ASCII)
_SPACES: Final = re.compile(f"([{WHITESPACE}])[{WHITESPACE}]+")

Run = tuple[str, ...]


class Imitation(Observer):
    """The words that this node knows by itself, and what of others' text they allow to imitate.

    Args:
        own: this node's account, whose text is its own policy's.
    """

    def __init__(self, families: Sequence[Family], own: Account) -> None:
        self._families = families
        self._own = own
        self._words: defaultdict[int, set[str]] = defaultdict(set)
        self._runs: defaultdict[int, OrderedDict[Run, None]] = defaultdict(OrderedDict)

    def verified(self, rollout: VerifiedRollout) -> None:
        """Learn the words of the prompt, and of own completions."""
        family = rollout.task.family
        words = self._words[family]
        if len(words) < MAX_WORDS:
            words.update(words_of(rollout.prompt))
        if rollout.account == self._own:
            for completion in rollout.completions:
                self._learn_own(family, words_of(reasoning(self._families[family], completion)))

    def imitable(self, family: int, completion: bytes) -> bytes:
        """Return the part of another account's right answer that may be imitated."""
        text = completion.decode()
        if self._families[family].answer == "plain":
            return text.strip(WHITESPACE).encode()
        way, _, rest = text.partition(OPEN_TAG)
        answer = rest.partition(CLOSE_TAG)[0].strip(WHITESPACE)
        shown = _SPACES.sub(r"\1", way.lstrip(WHITESPACE)) if self._knows(family, words_of(way)) else ""
        return f"{shown}{OPEN_TAG}{answer}{CLOSE_TAG}".encode()

    def _knows(self, family: int, words: Sequence[str]) -> bool:
        """Whether every word is a sign, of the prompts, or within an own run."""
        known, runs = self._words[family], self._runs[family]
        unknown = {place for place, word in enumerate(words) if not _is_sign(word) and word not in known}
        if not unknown:
            return True
        covered: set[int] = set()
        for start in range(len(words) - RUN_WORDS + 1):
            if tuple(words[start : start + RUN_WORDS]) in runs:
                covered.update(range(start, start + RUN_WORDS))
        return unknown <= covered

    def _learn_own(self, family: int, words: Sequence[str]) -> None:
        runs = self._runs[family]
        for start in range(len(words) - RUN_WORDS + 1):
            run = tuple(words[start : start + RUN_WORDS])
            runs[run] = None
            runs.move_to_end(run)
        while len(runs) > MAX_RUNS:
            runs.popitem(last=False)


def _is_sign(word: str) -> bool:
    """Whether a word is a number, a single letter, digits with few letters between them, or mathematical."""
    return _SIGN.fullmatch(word) is not None or category(word[0]) in MATHEMATICAL
