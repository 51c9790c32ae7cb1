"""Demonstrations: other accounts' verified right answers, kept while this policy fails in their family.

A demonstration is trained by cross-entropy (``supervised.py``), repeatedly, because it costs no sampling.
Families are drawn by their *need*, 1 minus the own success there, which is measured on own groups only
(``baseline.py``). Accounts share the buffer and each family's draws equally, so that an account with many
texts displaces only its own.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Final, TypeVar

import cbor2

from sapo_client.learner.baseline import MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.imitation.answer_shares import in_shares, usual_form

T = TypeVar("T")

_Place = tuple[tuple[int, ...], tuple[int, ...]]
"""Prompt and completion of a text."""

OWN: Final = b""
"""Author of own answers; no account's id."""

CAPACITY: Final = 4000
"""Texts by default, some sixty draws of the default size."""

REHEARSED_PER_GROUP: Final = 2
"""Right completions kept of an own group."""


@dataclass(frozen=True, slots=True)
class DemonstrationText:
    """A right answer of another account, as token ids of this policy.

    Attributes:
        prompt: token ids.
        completion: token ids with the end token.
        family: the task's family as an index of the suite.
        author: id of the account.
        answer: the answer in the completion, without its steps.
        steps: number of the completion's tokens before the answer; 0 if there is no text beside it, or if it
            is not known.
    """

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    family: int
    author: bytes
    answer: bytes = b""
    steps: int = field(default=0, compare=False)


class DemonstrationBuffer:
    """Bounded set of different demonstrations, the newest of each author.

    Once it is full, the author with the most texts loses its oldest one for each new text; if the new text's
    author has as many as any other, it loses its own. So an author with no more than an equal share loses no
    text to the others, however many they send.

    Args:
        capacity: most texts.
        texts: to add, oldest first.

    Attributes:
        capacity: as given.
    """

    def __init__(self, capacity: int = CAPACITY, texts: Iterable[DemonstrationText] = ()) -> None:
        self.capacity = capacity
        self._texts: dict[bytes, dict[_Place, DemonstrationText]] = {}
        self._size = 0
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[DemonstrationText]:
        """Iterate over the texts, author by author, each author's oldest first."""
        return chain.from_iterable(own.values() for own in self._texts.values())

    def add(self, text: DemonstrationText) -> None:
        """Add a text in place of the same one by its author; evict one that is too many."""
        own = self._texts.setdefault(text.author, {})
        place = text.prompt, text.completion
        self._size += own.pop(place, None) is None
        own[place] = text
        if self._size > self.capacity:
            self._evict(text.author)

    def forget(self, families: Iterable[int]) -> None:
        """Remove all texts of some families."""
        removed = set(families)
        self._keep([text for text in self if text.family not in removed])

    def forget_pairs(self, pairs: Collection[tuple[bytes, int]]) -> None:
        """Remove all texts of some authors in a family each."""
        if any((text.author, text.family) in pairs for text in self):
            self._keep([text for text in self if (text.author, text.family) not in pairs])

    def families(self) -> set[int]:
        """Return the families of the texts."""
        return {text.family for text in self}

    def draw(self, needs: Mapping[int, float], count: int, source: random.Random) -> list[DemonstrationText]:
        """Draw different texts, at most ``count``: families by need, accounts within a family in turns.

        Args:
            needs: weight of each family; texts of families without one are not drawn.
            count: most texts; fewer if the families have no more.
            source: random generator.
        """
        waiting = {family: self._in_turns(family, source) for family in sorted(needs) if needs[family] > 0.0}
        drawn: list[DemonstrationText] = []
        while waiting and len(drawn) < count:
            (family,) = source.choices(list(waiting), [needs[family] for family in waiting])
            if (text := next(waiting[family], None)) is None:
                del waiting[family]
            else:
                drawn.append(text)
        return drawn

    def to_bytes(self) -> bytes:
        """Return the texts as CBOR, in the order of iteration."""
        rows = [
            [list(text.prompt), list(text.completion), text.family, text.author, text.answer] for text in self
        ]
        return cbor2.dumps(rows)

    @classmethod
    def from_bytes(cls, capacity: int, data: bytes) -> DemonstrationBuffer:
        """Return a buffer with the texts that ``to_bytes`` wrote."""
        return cls(
            capacity,
            (
                DemonstrationText(tuple(prompt), tuple(completion), family, author, answer)
                for prompt, completion, family, author, answer in cbor2.loads(data)
            ),
        )

    def _keep(self, texts: Sequence[DemonstrationText]) -> None:
        self._texts, self._size = {}, 0
        for text in texts:
            self.add(text)

    def _evict(self, newest_author: bytes) -> None:
        """Remove the oldest text of the author with the most texts, in a tie of the newest text's author."""
        author = max(self._texts, key=lambda each: (len(self._texts[each]), each == newest_author))
        own = self._texts[author]
        del own[next(iter(own))]
        self._size -= 1
        if not own:
            del self._texts[author]

    def _in_turns(self, family: int, source: random.Random) -> Iterator[DemonstrationText]:
        """Yield a family's texts, the accounts in turn."""
        queues = [
            _shuffled([text for text in own.values() if text.family == family], source)
            for own in self._texts.values()
        ]
        rounds = zip_longest(*_shuffled(queues, source))
        in_turns = [text for turn in rounds for text in turn if text is not None]
        return balanced(in_turns, source)


def own_right_answers(groups: Iterable[TrainingGroup]) -> Iterator[DemonstrationText]:
    """Yield a few different right completions of each own group, to be rehearsed.

    Groups without a family, which answer a task of another account's choice, are left out.
    """
    for group in groups:
        if group.external or group.family is None:
            continue
        pairs = zip(group.completions, group.rewards, strict=True)
        right = dict.fromkeys(text for text, reward in pairs if text and reward == 1.0)
        for text in list(right)[:REHEARSED_PER_GROUP]:
            yield DemonstrationText(group.prompt, text, group.family, OWN, b"-".join(b"%d" % t for t in text))


def balanced(texts: Sequence[DemonstrationText], source: random.Random) -> Iterator[DemonstrationText]:
    """Yield texts of one family in their order, limiting each answer to its share (``answer_shares``).

    An author selects the tasks that it shows. Texts that all have the right answer "Sunday" would otherwise
    teach that the answer is always "Sunday".
    """
    shown = [(text.author, usual_form(text.answer)) for text in texts]
    return (texts[place] for place in in_shares(shown, source))


def need(baselines: Baselines, family: int, need_below: float) -> float:
    """Return how much demonstrations of a family are needed: 1 minus the own success, or 0 if that is high.

    With fewer than ``MIN_SAMPLES`` own completions, the missing ones count as right. So a family is never
    trained without a measurement, and soon if the first completions are all wrong.

    Args:
        baselines: own mean rewards.
        family: as an index of the suite.
        need_below: own success from which nothing is needed.
    """
    known = baselines.families.get(family, FamilyBaseline())
    missing = max(0, MIN_SAMPLES - known.samples)
    success = (known.mean * known.samples + missing) / (known.samples + missing)
    return 1.0 - success if success < need_below else 0.0


def is_solved(baselines: Baselines, family: int, need_below: float) -> bool:
    """Whether the own success in a family is measured and is at least ``need_below``."""
    known = baselines.of(family)
    return known is not None and known.mean >= need_below


def _shuffled(items: Sequence[T], source: random.Random) -> list[T]:
    return source.sample(items, len(items))
