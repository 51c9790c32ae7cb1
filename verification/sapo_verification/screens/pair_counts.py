"""Counts of runs of text by account and family, in memory of fixed size; and which accounts are compared."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import lru_cache
from hashlib import blake2b
from heapq import nlargest
from typing import Final, TypeVar

from sapo_protocol.identifiers import Account
from sapo_verification.fair_memory import FairMemory, IsNewcomer, Lots, nobody
from sapo_verification.screens.run_counts import RunCounts
from sapo_verification.types import Pair

T = TypeVar("T")

MAX_PAIRS: Final = 1024
"""Pairs of account and family, some 25 KiB each. Of newcomers the one received longest ago is dropped; of
known accounts one of the family with most of them, by lots."""

PATIENCE: Final = 64
"""A known account makes room first if it was not heard in a family while this many times ``MAX_PAIRS`` pairs
were."""

TURN_GROUPS: Final = 32
"""Groups after which a pair makes room for others where pairs take turns: enough to tell what recurs."""

MIN_OTHERS: Final = 3
"""Other accounts in a family with which one is compared; with fewer, of which one could lie, it is not."""

MAX_COMPARED: Final = 32
"""Accounts that are compared in a family, those that weigh most."""

MAX_RUNS: Final = 1024
"""Counted per text, a keyed sample of those of a longer one."""


def keyed_hash(text: bytes, key: bytes) -> int:
    """Return a hash of 64 bits."""
    return int.from_bytes(blake2b(text, digest_size=8, key=key).digest(), "big")


def heaviest(weights: Mapping[Account, float], key: bytes) -> Collection[Account]:
    """Return the ``MAX_COMPARED`` accounts that weigh most, in the order given if they are no more.

    Of equals the key decides, so that no account can be made that comes first.
    """
    if len(weights) <= MAX_COMPARED:
        return weights.keys()
    return nlargest(MAX_COMPARED, weights, lambda account: (weights[account], keyed_hash(account, key)))


class Turns:
    """Turns of pairs where they are more than have room: whose turn is over makes room for one that has none.

    Else whoever has no place would never be screened. A turn lasts for a number of groups, or of uses of the
    memory if a pair is heard rarely. No account can see whether it has one.
    """

    def __init__(self) -> None:
        self._over_at: dict[Pair, int] = {}
        self._uses = 0

    def lot(self, pair: Pair) -> int:
        """Return a larger number for a pair that makes room before others, for ``Lots``."""
        over_at = self._over_at.get(pair)
        if over_at is None:
            return 1  # it has no place yet
        return 2 if over_at <= self._uses else 0

    def note(self, pair: Pair, dropped: Pair | None, *, is_over: bool) -> None:
        """Record that a pair was counted and another one dropped for it, or itself."""
        self._uses += 1
        if dropped is not None:
            self._over_at.pop(dropped, None)
        if dropped != pair:
            self._over_at.setdefault(pair, self._uses + PATIENCE * MAX_PAIRS)
            if is_over:
                self._over_at[pair] = self._uses


def pair_memory(
    make: Callable[[], T], is_newcomer: IsNewcomer, key: bytes, turns: Turns | None = None
) -> FairMemory[Pair, T]:
    """Return a memory of something for each pair; ``make`` returns that of a new one.

    Where the keys of several are equal they keep the same accounts, unless pairs take turns.
    """

    @lru_cache(maxsize=2 * MAX_PAIRS)
    def lot(pair: Pair) -> int:
        return keyed_hash(pair[0], key)

    lots = Lots(kind_of=_family, lot=lot if turns is None else turns.lot, patience=PATIENCE)
    return FairMemory(MAX_PAIRS, make, _account, is_newcomer, lots)


def _account(pair: Pair) -> Account:
    return pair[0]


def _family(pair: Pair) -> int:
    return pair[1]


class PairCounts:
    """Counts of runs per account and family.

    Args:
        key: at most 64 random bytes that no other node knows.
        width, fade_groups: see ``RunCounts``.
        min_groups: with fewer, an account is not compared.
        is_newcomer: see ``FairMemory``.
        in_turns: whether pairs take turns where they are more than have room; else those that have a place
            keep it.
    """

    def __init__(
        self,
        key: bytes,
        *,
        width: int,
        fade_groups: int,
        min_groups: int = 1,
        is_newcomer: IsNewcomer = nobody,
        in_turns: bool = False,
    ) -> None:
        self._key = key
        self._min_groups = min_groups
        self._turns = Turns() if in_turns else None
        self._counts = pair_memory(lambda: RunCounts(width, fade_groups), is_newcomer, key, self._turns)
        self._weights: Mapping[Account, float] | None = None

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, pair: Pair, runs: Set[int]) -> tuple[RunCounts, Pair | None]:
        """Count a group; return the counts of its pair, and the pair that was dropped for it."""
        counts, dropped = self._counts.touch(pair)
        counts.add(runs)
        if self._turns is not None:
            self._turns.note(pair, dropped, is_over=counts.groups == TURN_GROUPS)
        return counts, dropped

    def accounts(self) -> frozenset[Account]:
        """Return the accounts that have counts."""
        return frozenset(account for account, _ in self._counts)

    def weigh(self, weights: Mapping[Account, float]) -> None:
        """Compare accounts by these weights from now on, in any unit; an account without one has none.

        Until the first call all are equal.
        """
        self._weights = weights

    def weight(self, account: Account) -> float:
        """Return an account's weight in a comparison."""
        return 1.0 if self._weights is None else self._weights.get(account, 0.0)

    def compared(self, family: int) -> dict[Account, RunCounts]:
        """Return the counts of the accounts that weigh most in a family, at most ``MAX_COMPARED``."""
        known = {
            account: counts
            for (account, each), counts in self._counts.items()
            if each == family and counts.groups >= self._min_groups and self.weight(account) > 0.0
        }
        chosen = heaviest({account: self.weight(account) for account in known}, self._key)
        return {account: known[account] for account in chosen}

    def hash(self, text: bytes) -> int:
        """Return a keyed hash of 64 bits."""
        return keyed_hash(text, self._key)

    def hashed(self, runs: Iterable[str]) -> frozenset[int]:
        """Return the hashes of different runs, at most ``MAX_RUNS``."""
        return frozenset(sorted({self.hash(run.encode()) for run in runs})[:MAX_RUNS])
