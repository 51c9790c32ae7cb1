"""Near-duplicates (stage 11): the same text pasted under many questions, or copied from other accounts.

Only the reasoning beside the answer is compared. The answer is determined by its task: two honest policies
give the same one, families with short answers have few different ones, and a copied answer fits no other
account's task anyway. So families whose completions are nothing but an answer are not examined here.

A completion counts if its reasoning has thirty-two different runs of five words that are not digits alone.
Two are near-duplicates if their Jaccard similarity over those runs is 0.55 or more: one word changed in
twenty. It is estimated from bottom-k sketches (Broder, 1997) under a secret key of this node, so an attacker
cannot choose text by its sketch. Honest reasoning about different questions differs wherever the question's
words and numbers appear, and each of them changes five runs.

A group is refused when more than half of its completions repeat

* the account's own text under another question. Under the same question the same text is natural;
or text of another account in the same family and epoch, if that one arrived here clearly earlier.
Messages that crossed, came by catch-up or before a restart have no clear order: then no account is blamed.
Neither is one whose own question is what both texts are about: everybody can derive everybody's tasks, so
whoever knows how an account writes could write its texts before it does, and have it blamed for copying them.
The runs in common tell: they hold more words of the question that the first author of the text had.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from typing import Final

from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.suite import Family
from sapo_verification.fair_memory import FairMemory, IsNewcomer, nobody
from sapo_verification.tasks.text_policy import reasoning
from sapo_verification.tasks.words import window_hashes, word_hashes, words_of
from sapo_verification.types import VerifiedRollout

RUN_WORDS: Final = 5
MIN_RUNS: Final = 32
SIMILAR: Final = 0.55
"""One word in twenty changed leaves 0.6 or more. The same sentences about other numbers leave 0.15 at most
(`tests/support/traffic.py`)."""

COPIED_SHARE: Final = 0.5
"""One completion of a group may repeat by chance; where half of them do, they were pasted, not sampled."""

SKETCH: Final = 128
"""Runs kept per text: the estimate has a standard error of 0.044."""

PROBES: Final = 8
"""Of two similar texts at least one of the eight smallest hashes is shared in all but one case of 600."""

MAX_CANDIDATES: Final = 16
"""Texts compared with one completion, those first that share most of the smallest hashes."""

MAX_SHARING: Final = 128
"""Newest texts looked up under one hash, for a common phrase is in very many; a missed one is harmless."""

MAX_TEXTS: Final = 8192
"""About 1.5 KiB each. Of known accounts the one with most texts loses its oldest, so that a few that send as
much as they may do not make a node forget whose texts they copy."""

MAX_TEXTS_PER_ACCOUNT: Final = 512
"""Beyond it an account's own oldest text is dropped first."""

MAX_ARRIVALS: Final = 16_384

CLEARLY_EARLIER_SECONDS: Final = 5.0
"""Gossip crosses a swarm in a second or two, and its heartbeats fetch what was missed soon after."""


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    """The reasoning of one completion that counts.

    Attributes:
        asked: keyed hashes of the words in the question, the same for all texts of a group.
        sketch: smallest keyed hashes of the text's runs, ascending.
    """

    content_id: ContentId
    account: Account
    family: int
    epoch: int
    question: bytes
    asked: array[int]
    sketch: array[int]


_Runs = Mapping[int, tuple[int, ...]]
"""The runs of a text: the hashes of their words by the hash of each."""

_Sent = tuple[Account, ContentId]


@dataclass(slots=True)
class _Arrival:
    """When a rollout arrived, and whether soon after it was sent."""

    seconds: float = 0.0
    live: bool = False


def _nothing() -> None:
    """Return the fingerprint that is kept of a text."""


class NearDuplicates:
    """Sketches of recently verified texts, and when their rollouts arrived.

    Args:
        key: at most 64 random bytes that no other node knows.
        own: this node's account: others are compared with it, it is never blamed.
        is_newcomer: see ``FairMemory``: whose texts were copied is not forgotten for those of new accounts.
    """

    def __init__(
        self,
        families: Sequence[Family],
        key: bytes,
        own: Account | None,
        max_texts: int = MAX_TEXTS,
        is_newcomer: IsNewcomer = nobody,
    ) -> None:
        self._families = families
        self._key = key
        self._own = own
        self._texts = FairMemory[_Text, None](
            max_texts, _nothing, lambda text: text.account, is_newcomer, evenly=True
        )
        self._by_account: defaultdict[Account, deque[_Text]] = defaultdict(deque)
        self._by_hash: defaultdict[int, list[_Text]] = defaultdict(list)
        self._arrivals = FairMemory[_Sent, _Arrival](
            MAX_ARRIVALS, _Arrival, lambda sent: sent[0], is_newcomer, evenly=True
        )

    def __len__(self) -> int:
        return len(self._texts)

    def note_arrival(
        self, account: Account, content_id: ContentId, now_seconds: float, *, live: bool
    ) -> None:
        """Record when an account's rollout arrived; ``live`` if it came by gossip, soon after it was sent."""
        if self._arrivals.get((account, content_id)) is None:
            arrival, _ = self._arrivals.touch((account, content_id))
            arrival.seconds, arrival.live = now_seconds, live

    def examine(self, rollout: VerifiedRollout) -> str | None:
        """Remember the texts of a verified group; return its fault, or None."""
        texts = list(self._texts_of(rollout))
        copied = 0 if rollout.account == self._own else sum(self._is_copied(*each) for each in texts)
        for text, _ in texts:
            self._remember(text)
        if copied <= COPIED_SHARE * len(rollout.completions):
            return None
        return f"{copied} of {len(rollout.completions)} completions repeat earlier text"

    def _texts_of(self, rollout: VerifiedRollout) -> Iterator[tuple[_Text, _Runs]]:
        """Yield the texts that count, each with its runs."""
        asked = array("Q", sorted(word_hashes(words_of(rollout.prompt), self._key).values()))
        question = sha256(rollout.prompt.encode()).digest()
        epoch, family = rollout.admitted.rollout.epoch, rollout.task.family
        for completion in rollout.completions:
            words = words_of(reasoning(self._families[family], completion))
            runs = window_hashes(words, RUN_WORDS, self._key)
            if len(runs) >= MIN_RUNS:
                text = _Text(
                    content_id=rollout.content_id,
                    account=rollout.account,
                    family=family,
                    epoch=epoch,
                    question=question,
                    asked=asked,
                    sketch=array("Q", nsmallest(SKETCH, runs)),
                )
                yield text, runs

    def _is_copied(self, text: _Text, runs: _Runs) -> bool:
        shared = Counter(
            known
            for probe in text.sketch[:PROBES]
            for known in self._by_hash.get(probe, ())[-MAX_SHARING:]
            if self._may_blame(text, known)
        )
        closest = shared.most_common(MAX_CANDIDATES)
        return any(
            similarity(text.sketch, known.sketch) >= SIMILAR and not _is_about_own(text, runs, known)
            for known, _ in closest
        )

    def _may_blame(self, text: _Text, known: _Text) -> bool:
        """Whether the text, if it resembles the known one, counts as copied."""
        if text.account == known.account:
            return text.question != known.question
        return (text.family, text.epoch) == (known.family, known.epoch) and self._came_after(text, known)

    def _came_after(self, text: _Text, known: _Text) -> bool:
        ours = self._arrivals.get((text.account, text.content_id))
        theirs = self._arrivals.get((known.account, known.content_id))
        if ours is None or theirs is None:
            return False
        return ours.live and theirs.seconds + CLEARLY_EARLIER_SECONDS < ours.seconds

    def _remember(self, text: _Text) -> None:
        _, dropped = self._texts.touch(text)
        mine = self._by_account[text.account]
        mine.append(text)
        for probe in text.sketch[:PROBES]:
            self._by_hash[probe].append(text)
        if len(mine) > MAX_TEXTS_PER_ACCOUNT:
            self._texts.pop(mine[0])
            self._forget(mine[0])
        if dropped is not None:
            self._forget(dropped)

    def _forget(self, text: _Text) -> None:
        """Drop what is known of a text."""
        mine = self._by_account[text.account]
        mine.remove(text)
        if not mine:
            del self._by_account[text.account]
        for probe in text.sketch[:PROBES]:
            texts = self._by_hash[probe]
            texts.remove(text)
            if not texts:
                del self._by_hash[probe]


def _is_about_own(text: _Text, runs: _Runs, known: _Text) -> bool:
    """Whether the common part of a text and an earlier one of another account is about its own question."""
    if text.account == known.account:
        return False
    common = {word for run in {*text.sketch} & {*known.sketch} for word in runs[run]}
    own, theirs = common & {*text.asked}, common & {*known.asked}
    return len(own - theirs) > len(theirs - own)


def similarity(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the estimated Jaccard similarity of two sets from their smallest hashes.

    It is exact for sets of fewer than ``SKETCH`` elements.
    """
    smallest = sorted({*one, *other})[:SKETCH]
    shared = {*one} & {*other}
    return sum(value in shared for value in smallest) / len(smallest) if smallest else 0.0
