"""Right answers of other accounts that wait to be imitated.

Every verified rollout is looked at once, also those in which all answers are right: they carry no advantage
for the policy gradient, but they are what an account that has mastered a family can show. Texts wait by
account, and each is handed out once; what is done with it afterwards is the learner's business.
"""

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Final

from sapo_protocol.identifiers import Account
from sapo_verification.observer import SilentObserver
from sapo_verification.types import Demonstration, Pair, VerifiedRollout

PER_GROUP: Final = 2
"""Answers taken of one group: more of them say the same."""

PER_ACCOUNT: Final = 128
"""Texts that wait of one account; its oldest gives way."""

MOST_SHOWN: Final = 1024
"""Texts handed out last, whose form is looked at again: the first accounts that show a family may lie."""

MOST_ACCOUNTS: Final = 1024
"""Accounts with texts waiting; the one that was quiet for longest gives way."""


class DemonstrationPool(SilentObserver):
    """Right answers of other accounts, by account.

    Args:
        own: this node's account, which shows itself nothing.
        imitable: what of a right answer may be imitated, by the index of its family.
        is_usual: whether most accounts write such text in a family, by its index, for such a prompt; other
            text waits.
    """

    def __init__(
        self,
        own: Account,
        imitable: Callable[[int, bytes], bytes],
        is_usual: Callable[[int, str, bytes], bool],
    ) -> None:
        self._own = own
        self._imitable = imitable
        self._is_usual = is_usual
        self._waiting: OrderedDict[Account, deque[Demonstration]] = OrderedDict()
        self._shown: deque[Demonstration] = deque(maxlen=MOST_SHOWN)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def verified(self, rollout: VerifiedRollout) -> None:
        """Keep a few different right answers of another account's group."""
        if rollout.account == self._own:
            return
        imitable = dict.fromkeys(
            self._imitable(rollout.task.family, completion) for completion in rollout.right
        )
        for completion in list(imitable)[:PER_GROUP]:
            self._add(rollout, completion)

    def accounts(self) -> frozenset[Account]:
        """Return the accounts with texts waiting."""
        return frozenset(self._waiting)

    def take(
        self,
        count: int,
        *,
        shares: Mapping[Account, float],
        need: Callable[[int], float],
        part: Callable[[Account, int], float],
        rng: random.Random,
    ) -> tuple[Demonstration, ...]:
        """Remove and return up to so many texts.

        Args:
            shares: of the places, by account; where they add up to less than 1, places stay empty.
            need: weight of a family among an account's texts, 0 for one of which nothing is taken.
            part: of an account's places in a family that are filled, 0 to 1; the others stay empty.
        """
        taken: list[Demonstration] = []
        accounts, weights = list(shares), list(shares.values())
        mass = sum(weights)
        for _ in range(count):
            if rng.random() >= mass:
                continue
            (account,) = rng.choices(accounts, weights)
            if (found := self._take_one(account, need, part, rng)) is not None:
                taken.append(found)
        return tuple(taken)

    def withdrawn(self) -> frozenset[Pair]:
        """Return the accounts, with the families, of texts that were handed out and are unusual now, once."""
        usual, pairs = list[Demonstration](), set[Pair]()
        for shown in self._shown:
            if self._is_usual(shown.family, shown.prompt, shown.completion):
                usual.append(shown)
            else:
                pairs.add((shown.account, shown.family))
        self._shown = deque(usual, MOST_SHOWN)
        return frozenset(pairs)

    def drop(self, account: Account) -> None:
        """Drop all texts of an account."""
        self._waiting.pop(account, None)

    def _add(self, rollout: VerifiedRollout, completion: bytes) -> None:
        demonstration = Demonstration(
            task=rollout.task,
            prompt=rollout.prompt,
            completion=completion,
            source=rollout,
        )
        waiting = self._waiting.setdefault(rollout.account, deque(maxlen=PER_ACCOUNT))
        waiting.append(demonstration)
        self._waiting.move_to_end(rollout.account)
        if len(self._waiting) > MOST_ACCOUNTS:
            self._waiting.popitem(last=False)

    def _take_one(
        self,
        account: Account,
        need: Callable[[int], float],
        part: Callable[[Account, int], float],
        rng: random.Random,
    ) -> Demonstration | None:
        waiting = self._waiting.get(account, ())
        weights = [need(demonstration.family) for demonstration in waiting]
        if not any(weights):
            return None
        (place,) = rng.choices(range(len(waiting)), weights)
        demonstration = waiting[place]
        family = demonstration.family
        if rng.random() >= part(account, family) or not self._is_usual(
            family, demonstration.prompt, demonstration.completion
        ):
            return None
        del self._waiting[account][place]
        if not self._waiting[account]:
            del self._waiting[account]
        self._shown.append(demonstration)
        return demonstration
