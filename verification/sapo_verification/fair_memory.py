"""A bounded cache of values about accounts, in which newcomers cannot displace known accounts.

Accounts are free to create. With a plain least-recently-used cache a flood of new accounts would displace
what a node remembers of known ones. So newcomers keep at most half of the entries when there are too many.

When known accounts alone have too many entries, one of three rules decides which is dropped. *The least
recently used one*: if all are used in turns none is kept long enough to learn from it, and an account that
sends more than others takes their places. *Lots*: those that have a place keep it. *Evenly*: the account with
most entries loses its least recently used one, so that each of n accounts keeps an n-th at least.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, TypeVar

from sapo_protocol.identifiers import Account

NEWCOMERS_PART: Final = 0.5
"""Part of the entries that newcomers keep at most when the cache is full."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

IsNewcomer = Callable[[Account], bool]


def nobody(_account: Account) -> bool:
    """Return False: for a caller that makes no difference between newcomers and known accounts."""
    return False


@dataclass(frozen=True, slots=True)
class Lots(Generic[K]):
    """The rule by which keys of known accounts are dropped.

    Attributes:
        kind_of: returns the kind of a key: a key of the kind with most keys is dropped.
        lot: returns a number that no account can choose; of a kind the key with the largest one is dropped.
        patience: a key that was not used during ``patience * max_keys`` uses of others is dropped before
            others.
    """

    kind_of: Callable[[K], Hashable]
    lot: Callable[[K], int]
    patience: int


class _Holdings(Generic[K]):
    """Keys by account in the order of their use, and which account has most of them; all in constant time."""

    def __init__(self) -> None:
        self._keys: dict[Account, OrderedDict[K, None]] = {}
        self._holders: dict[int, OrderedDict[Account, None]] = {}
        """Accounts by their number of keys; of those with equally many the one that had so many first is
        first. A number that no account has is no key."""
        self._most = 0

    def add(self, account: Account, key: K) -> None:
        """Add a key as the one used last; the account must not have it."""
        keys = self._keys.setdefault(account, OrderedDict())
        keys[key] = None
        self._move(account, len(keys) - 1, len(keys))
        self._most = max(self._most, len(keys))

    def remove(self, account: Account, key: K) -> None:
        """Remove a key of an account, if the account has it."""
        keys = self._keys.get(account)
        if keys is None or key not in keys:
            return
        del keys[key]
        self._move(account, len(keys) + 1, len(keys))
        if not keys:
            del self._keys[account]
        if self._most and self._most not in self._holders:
            self._most -= 1

    def first(self) -> K:
        """Return the least recently used key of the account that has most."""
        account = next(iter(self._holders[self._most]))
        return next(iter(self._keys[account]))

    def _move(self, account: Account, before: int, now: int) -> None:
        if before:
            accounts = self._holders[before]
            del accounts[account]
            if not accounts:
                del self._holders[before]
        if now:
            self._holders.setdefault(now, OrderedDict())[account] = None


class FairMemory(Generic[K, T]):
    """Values by key, each key belonging to an account; at most ``most`` of them.

    Args:
        max_keys: keys kept; beyond it the least recently used one, of known or of new accounts, is dropped.
        make: returns the value of a new key.
        account_of: returns the account that a key belongs to.
        is_newcomer: whether an account has no reputation yet.
        lots: decide which key of known accounts is dropped; if unset, the least recently used one.
        evenly: drop the least recently used key of the known account that has most, instead.
    """

    def __init__(
        self,
        max_keys: int,
        make: Callable[[], T],
        account_of: Callable[[K], Account],
        is_newcomer: IsNewcomer,
        lots: Lots[K] | None = None,
        *,
        evenly: bool = False,
    ) -> None:
        self._max_keys = max_keys
        self._make = make
        self._account_of = account_of
        self._is_newcomer = is_newcomer
        self._known: OrderedDict[K, T] = OrderedDict()
        self._new: OrderedDict[K, T] = OrderedDict()
        self._lots = lots
        self._holdings = _Holdings[K]() if evenly else None
        self._uses = 0
        self._last_use: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._known) + len(self._new)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys."""
        return chain(self._known, self._new)

    def values(self) -> Iterator[T]:
        """Iterate over the values."""
        return chain(self._known.values(), self._new.values())

    def items(self) -> Iterator[tuple[K, T]]:
        """Iterate over the keys with their values."""
        return chain(self._known.items(), self._new.items())

    def get(self, key: K) -> T | None:
        """Return the value of a key, None if there is none."""
        return self._known.get(key, self._new.get(key))

    def pop(self, key: K) -> T | None:
        """Remove a key; return its value, None if there was none."""
        self._last_use.pop(key, None)
        return self._pop_known(key) if key in self._known else self._new.pop(key, None)

    def touch(self, key: K) -> tuple[T, K | None]:
        """Return the value of a key that is used now, new if necessary, and the key dropped for it."""
        value = self._pop_known(key) if key in self._known else self._new.pop(key, None)
        if value is None:
            value = self._make()
        self._uses += 1
        self._last_use[key] = self._uses
        if self._is_newcomer(self._account_of(key)):
            self._new[key] = value
        else:
            self._add_known(key, value)
        if len(self) <= self._max_keys:
            return value, None
        dropped = self._drop()
        del self._last_use[dropped]
        return value, dropped

    def _drop(self) -> K:
        while len(self._new) > NEWCOMERS_PART * self._max_keys:
            key, value = self._new.popitem(last=False)
            if self._is_newcomer(self._account_of(key)):
                return key
            self._add_known(key, value)  # its account has become known since
        key = self._first_of_known()
        self._pop_known(key)
        return key

    def _add_known(self, key: K, value: T) -> None:
        self._known[key] = value
        if self._holdings is not None:
            self._holdings.add(self._account_of(key), key)

    def _pop_known(self, key: K) -> T:
        if self._holdings is not None:
            self._holdings.remove(self._account_of(key), key)
        return self._known.pop(key)

    def _first_of_known(self) -> K:
        """Return the key of a known account that is dropped before others."""
        if self._holdings is not None:
            return self._holdings.first()
        oldest, lots = next(iter(self._known)), self._lots
        if lots is None or self._uses - self._last_use[oldest] > lots.patience * self._max_keys:
            return oldest
        sizes = Counter(map(lots.kind_of, self._known))
        return max(self._known, key=lambda key: (sizes[lots.kind_of(key)], lots.lot(key)))
