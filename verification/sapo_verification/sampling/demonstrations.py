"""Pool of right answers (demonstrations) of other accounts.

They come from every verified rollout, also from those in which all answers are right: these carry no
advantage for the policy gradient, but an account that has mastered a family makes no others. Each text is
used once: it is imitated in a family that this node has not mastered, and judged beside own right answers in
one that it has (``step_values.py``).
"""

import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.fair_memory import FairMemory, IsNewcomer, nobody
from sapo_verification.observer import Observer
from sapo_verification.types import Demonstration, Pair, VerifiedRollout

PER_GROUP: Final = 2
"""Answers taken of one group; more of them are too similar."""

PER_ACCOUNT: Final = 128
"""Texts in the pool of one account; beyond it its oldest is dropped."""

MAX_OWN: Final = 64
"""Own right answers in the pool; beyond it the oldest is dropped."""

MAX_SHOWN: Final = 1024
"""Newest used texts whose form is checked again: what is usual may change with more accounts in a family."""

MAX_ACCOUNTS: Final = 1024
"""Accounts with texts in the pool; beyond it the least recent one, known or newcomer, is dropped."""


class DemonstrationPool(Observer):
    """Right answers of other accounts, by account.

    Args:
        own: this node's account, whose answers are never imitated.
        imitable: returns the part of a right answer that may be imitated, from its family's index and text.
        is_usual: whether most accounts write such text, from the family's index, the prompt and the text;
            other text stays in the pool.
        is_newcomer: see ``FairMemory``.
    """

    def __init__(
        self,
        own: Account,
        imitable: Callable[[int, bytes], bytes],
        is_usual: Callable[[int, str, bytes], bool],
        is_newcomer: IsNewcomer = nobody,
    ) -> None:
        self._own = own
        self._imitable = imitable
        self._is_usual = is_usual
        self._waiting: FairMemory[Account, deque[Demonstration]] = FairMemory(
            MAX_ACCOUNTS, lambda: deque(maxlen=PER_ACCOUNT), lambda account: account, is_newcomer
        )
        self._own_answers: deque[Demonstration] = deque(maxlen=MAX_OWN)
        self._shown: deque[Demonstration] = deque(maxlen=MAX_SHOWN)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def verified(self, rollout: VerifiedRollout) -> None:
        """Keep a few different right answers of a group."""
        imitable = dict.fromkeys(
            self._imitable(rollout.task.family, completion) for completion in rollout.right
        )
        for completion in list(imitable)[:PER_GROUP]:
            self._add(Demonstration(rollout.task, rollout.prompt, completion, source=rollout))

    def pairs(self) -> frozenset[Pair]:
        """Return the pairs of account and family that have texts in the pool."""
        return frozenset((each.account, each.family) for texts in self._waiting.values() for each in texts)

    def take(
        self,
        count: int,
        *,
        shares: Mapping[Account, float],
        need: Callable[[int], float],
        part: Callable[[Account, int], float],
        rng: random.Random,
    ) -> tuple[Demonstration, ...]:
        """Remove and return up to a number of texts to imitate.

        Args:
            shares: of the ``count`` places, by account; if they add up to less than 1, places stay empty, if
                to more, they are scaled down.
            need: weight of a family among an account's texts; 0 takes none.
            part: the part of an account's places in a family that is filled, 0 to 1; the others stay empty.
        """

        def fills(found: Demonstration) -> bool:
            family = found.family
            return rng.random() < part(found.account, family) and self._is_usual(
                family, found.prompt, found.completion
            )

        taken = self._draw(count, shares, lambda each: need(each.family), fills, rng)
        self._shown.extend(taken)
        return taken

    def take_to_judge(
        self,
        count: int,
        *,
        shares: Mapping[Account, float],
        is_known: Callable[[int], bool],
        rng: random.Random,
    ) -> tuple[Demonstration, ...]:
        """Remove and return texts with steps in mastered families: up to ``count`` of others, and own ones.

        Args:
            shares: of the places, by account.
            is_known: whether this node has mastered a family.
        """
        own = [each for each in self._own_answers if is_known(each.family) and each.has_steps]
        self._own_answers.clear()
        others = self._draw(
            count,
            shares,
            lambda each: float(is_known(each.family) and each.has_steps),
            lambda _: True,
            rng,
        )
        return (*others, *own)

    def withdrawn(self) -> frozenset[Pair]:
        """Return, once, the pairs of account and family of used texts whose form is not usual any more."""
        usual, pairs = list[Demonstration](), set[Pair]()
        for shown in self._shown:
            if self._is_usual(shown.family, shown.prompt, shown.completion):
                usual.append(shown)
            else:
                pairs.add((shown.account, shown.family))
        self._shown = deque(usual, MAX_SHOWN)
        return frozenset(pairs)

    def drop(self, account: Account) -> None:
        """Drop all texts of an account."""
        self._waiting.pop(account)

    def _add(self, demonstration: Demonstration) -> None:
        account = demonstration.account
        if account == self._own:
            self._own_answers.append(demonstration)
            return
        waiting, _ = self._waiting.touch(account)
        waiting.append(demonstration)

    def _draw(
        self,
        count: int,
        shares: Mapping[Account, float],
        weight: Callable[[Demonstration], float],
        fills: Callable[[Demonstration], bool],
        rng: random.Random,
    ) -> tuple[Demonstration, ...]:
        """Remove and return texts for up to ``count`` places; a text that does not fill its place stays."""
        taken: list[Demonstration] = []
        accounts, weights = list(shares), list(shares.values())
        mass = sum(weights)
        for _ in range(count):
            if rng.random() >= mass:
                continue
            (account,) = rng.choices(accounts, weights)
            waiting = self._waiting.get(account) or deque[Demonstration]()
            text_weights = [weight(each) for each in waiting]
            if not any(text_weights):
                continue
            (place,) = rng.choices(range(len(waiting)), text_weights)
            if fills(waiting[place]):
                taken.append(waiting[place])
                del waiting[place]
            if not waiting:
                self._waiting.pop(account)
        return tuple(taken)
