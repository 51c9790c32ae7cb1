"""An attacker's task and knowledge, from which completions are composed with a random generator."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sapo_client.lab.held_out import fresh_item, reward
from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Family
from sapo_verification.observer import Observer
from sapo_verification.tasks.generators import Item, solution
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG
from sapo_verification.types import VerifiedRollout

KNOWN_SOLUTIONS: Final = 32
"""Number of solutions of other items of a family, which serve as wrong answers."""

KNOWN_TEXTS: Final = 64
"""Number of honest accounts' completions that are kept per family."""


@dataclass(frozen=True, slots=True)
class Question:
    """A slot's task, solved.

    Attributes:
        right: an answer with reward 1.
        wrong: answers with reward 0: solutions of other items of the family.
        size: number of completions of a group.
    """

    family: Family
    item: Item
    right: str
    wrong: tuple[str, ...]
    size: int

    @property
    def has_text(self) -> bool:
        """Whether a completion may contain text beside its answer."""
        return self.family.answer == "tag"

    def completion(self, before: str, answer: str, after: str = "") -> str:
        """Return a completion: an answer, in tags where the family has them, between two texts."""
        given = f"{OPEN_TAG}{answer}{CLOSE_TAG}" if self.has_text else answer
        return f"{before}{given}{after}"


Completions = tuple[str, ...]


class Knowledge(Observer):
    """Honest accounts' rollouts and rewards that an attacker has received.

    Attributes:
        round: number of rounds that the honest agents have finished.
        rounds: number of rounds of the run.

    Args:
        agents: the honest accounts.
    """

    def __init__(self, families: Sequence[Family], agents: Collection[Account], rounds: int) -> None:
        self.round = 0
        self.rounds = rounds
        self._families = families
        self._agents = frozenset(agents)
        self._texts: dict[Family, deque[str]] = {}
        self._rewards: dict[Family, deque[float]] = {}

    def verified(self, rollout: VerifiedRollout) -> None:
        """Store a rollout, unless another attacker made it."""
        if rollout.account not in self._agents:
            return
        texts = [text.decode("utf-8", errors="replace") for text in rollout.completions]
        self.remember(self._families[rollout.task.family], texts, rollout.mean_reward)

    def remember(self, family: Family, texts: Sequence[str], mean_reward: float) -> None:
        """Store the completions of a group."""
        self._texts.setdefault(family, deque(maxlen=KNOWN_TEXTS)).extend(texts)
        self._rewards.setdefault(family, deque(maxlen=KNOWN_TEXTS)).append(mean_reward)

    def is_last(self, family: Family) -> bool:
        """Whether a family is the suite's last one, which attackers choose without communicating."""
        return family == self._families[-1]

    def is_past(self, share: float) -> bool:
        """Whether this share of the run is over."""
        return self.round >= share * self.rounds

    def ease(self, family: Family) -> float:
        """Return the mean reward of a family's latest rollouts; 0 before the first one."""
        rewards = self._rewards.get(family)
        return sum(rewards) / len(rewards) if rewards else 0.0

    def texts(self, family: Family) -> Sequence[str]:
        """Return a family's latest completions, without incomplete UTF-8 characters."""
        return [text for text in self._texts.get(family, ()) if "\ufffd" not in text]

    def steps(self, family: Family, draw: random.Random) -> str:
        """Return the text before some completion's answer; empty if none is known."""
        before = [text.partition(OPEN_TAG)[0] for text in self.texts(family) if text.count(OPEN_TAG) == 1]
        return draw.choice(before) if before else ""


Compose = Callable[[Question, Knowledge, random.Random], Completions | None]
"""Returns the completions of a group, or None to publish nothing for this task."""


class Questioner:
    """Maker of questions.

    Args:
        size: answers of a group.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def question(self, family: Family, item: Item) -> Question | None:
        """Return an item as a question; None if it has no solution, or no known answer is wrong."""
        right = solution(family, item)
        wrong = tuple(answer for answer in known_solutions(family) if not is_right(family, item, answer))
        if right is None or not wrong:
            return None
        return Question(family, item, right, wrong, self._size)


@lru_cache(maxsize=256)
def known_solutions(family: Family) -> tuple[str, ...]:
    """Return different solutions of some items of a family, the same for every attacker."""
    draw = random.Random(f"wrong answers/{family.name}")
    items = [fresh_item(family, draw)[1] for _ in range(KNOWN_SOLUTIONS)]
    found = [answer for item in items if (answer := solution(family, item)) is not None]
    return tuple(dict.fromkeys(found))


def is_right(family: Family, item: Item, answer: str) -> bool:
    """Whether a bare answer solves an item."""
    text = answer if family.answer == "plain" else f"{OPEN_TAG}{answer}{CLOSE_TAG}"
    return reward(family, item, text) == 1.0
