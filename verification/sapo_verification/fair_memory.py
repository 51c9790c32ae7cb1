"""A bounded cache of values about accounts, in which newcomers cannot displace known accounts.

Accounts are free to create. With a plain least-recently-used cache a flood of new accounts would displace
what a node remembers of known ones. So newcomers keep at most half of the entries when there are too many.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
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


class FairMemory(Generic[K, T]):
    """Values by key, each key belonging to an account; at most ``most`` of them.

    Args:
        most: keys kept; beyond it the least recently used one, of known accounts or of newcomers, is dropped.
        make: returns the value of a new key.
        account_of: returns the account that a key belongs to.
        is_newcomer: whether an account has no reputation yet.
    """

    def __init__(
        self,
        most: int,
        make: Callable[[], T],
        account_of: Callable[[K], Account],
        is_newcomer: IsNewcomer,
    ) -> None:
        self._most = most
        self._make = make
        self._account_of = account_of
        self._is_newcomer = is_newcomer
        self._known: OrderedDict[K, T] = OrderedDict()
        self._new: OrderedDict[K, T] = OrderedDict()

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
        return self._known.pop(key, None) or self._new.pop(key, None)

    def touch(self, key: K) -> tuple[T, K | None]:
        """Return the value of a key that is used now, new if necessary, and the key dropped for it."""
        value = self._known.pop(key) if key in self._known else self._new.pop(key, None)
        if value is None:
            value = self._make()
        (self._new if self._is_newcomer(self._account_of(key)) else self._known)[key] = value
        return value, self._drop() if len(self) > self._most else None

    def _drop(self) -> K:
        while len(self._new) > NEWCOMERS_PART * self._most:
            key, value = self._new.popitem(last=False)
            if self._is_newcomer(self._account_of(key)):
                return key
            self._known[key] = value  # its account has become known since
        return self._known.popitem(last=False)[0]
