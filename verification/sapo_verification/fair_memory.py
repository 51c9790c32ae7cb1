"""What a node remembers of accounts, within a number of entries that newcomers cannot take from the others.

Accounts are free. If the entry heard longest ago were always dropped, a flood of new accounts would make a
node forget what known accounts write, and what they were set aside for. So where there are too many entries,
newcomers keep half of them at most.

Where known accounts alone have too many entries, either the one heard longest ago is dropped, or lots decide.
Of entries that are heard in turns the first rule keeps none long enough to learn anything of it, and whoever
sends more than others takes their room.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Lots(Generic[K]):
    """What decides which keys of known accounts stay.

    Attributes:
        kind_of: the kind of a key: of the kind that has most keys one is dropped.
        lot: a number that no account can choose; the key with the largest one of its kind is dropped.
        patience: a key is dropped before others if others were heard so many times as often since as there
            is room for keys.
    """

    kind_of: Callable[[K], Hashable]
    lot: Callable[[K], int]
    patience: int


class FairMemory(Generic[K, T]):
    """Values by a key, of accounts.

    Args:
        most: keys; of known accounts or of newcomers the one heard longest ago is dropped.
        make: returns the value of a key that is heard for the first time.
        account_of: whose key it is.
        is_newcomer: whether an account is not known yet.
        lots: unset: of known accounts the key heard longest ago is dropped.
    """

    def __init__(
        self,
        most: int,
        make: Callable[[], T],
        account_of: Callable[[K], Account],
        is_newcomer: IsNewcomer,
        lots: Lots[K] | None = None,
    ) -> None:
        self._most = most
        self._make = make
        self._account_of = account_of
        self._is_newcomer = is_newcomer
        self._known: OrderedDict[K, T] = OrderedDict()
        self._new: OrderedDict[K, T] = OrderedDict()
        self._lots = lots
        self._times = 0
        self._heard: dict[K, int] = {}

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
        self._heard.pop(key, None)
        return self._known.pop(key, None) or self._new.pop(key, None)

    def heard(self, key: K) -> tuple[T, K | None]:
        """Return the value of a key of which its account sent something, and the key dropped for it."""
        value = self._known.pop(key) if key in self._known else self._new.pop(key, None)
        if value is None:
            value = self._make()
        self._times += 1
        self._heard[key] = self._times
        (self._new if self._is_newcomer(self._account_of(key)) else self._known)[key] = value
        if len(self) <= self._most:
            return value, None
        dropped = self._drop()
        del self._heard[dropped]
        return value, dropped

    def _drop(self) -> K:
        while len(self._new) > NEWCOMERS_PART * self._most:
            key, value = self._new.popitem(last=False)
            if self._is_newcomer(self._account_of(key)):
                return key
            self._known[key] = value  # its account has become known since
        key = self._first_of_known()
        del self._known[key]
        return key

    def _first_of_known(self) -> K:
        """Return the key of a known account that is dropped before others."""
        oldest, lots = next(iter(self._known)), self._lots
        if lots is None or self._times - self._heard[oldest] > lots.patience * self._most:
            return oldest
        sizes = Counter(map(lots.kind_of, self._known))
        return max(self._known, key=lambda key: (sizes[lots.kind_of(key)], lots.lot(key)))
