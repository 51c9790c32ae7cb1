"""What a node remembers of accounts, within a number of entries that newcomers cannot take from the others.

Accounts are free. If the entry heard longest ago were always dropped, a flood of new accounts would make a
node forget what known accounts write, and what they were set aside for. So where there are too many entries,
newcomers keep half of them at most.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from sapo_protocol.identifiers import Account

NEWCOMERS_PART: Final = 0.5
"""Of the entries that newcomers keep where known accounts need the others."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

IsNewcomer = Callable[[Account], bool]


def nobody(_account: Account) -> bool:
    """Call nobody a newcomer: where all accounts are known, or none is."""
    return False


class FairMemory(Generic[K, T]):
    """Values by a key, of accounts.

    Args:
        most: keys; of known accounts or of newcomers the one heard longest ago is dropped.
        make: returns the value of a key that is heard for the first time.
        account_of: whose key it is.
        is_newcomer: whether an account is not known yet.
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

    def heard(self, key: K) -> tuple[T, K | None]:
        """Return the value of a key of which its account sent something, and the key dropped for it."""
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
