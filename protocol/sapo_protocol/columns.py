"""Long lists of accounts and numbers, kept in arrays instead of Python objects.

As tuples, a thousand rows take five times the memory of the message that held them, and any peer may send it.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar, overload

from sapo_protocol.identifiers import Account

Row = TypeVar("Row")

_UINT64: Final = "Q"


class Columns(Sequence[Row]):
    """A sequence of rows, each an account and some numbers below 2**64; a row object is built on access.

    Equal to any tuple of equal rows.

    Args:
        build: makes a row of an account and its numbers.
        numbers: how many numbers a row has.
        cells: for every row the account and its numbers.
    """

    def __init__(
        self, build: Callable[..., Row], numbers: int, cells: Iterable[tuple[Account, Sequence[int]]]
    ) -> None:
        self._build = build
        self._accounts = bytearray()
        self._numbers = tuple(array(_UINT64) for _ in range(numbers))
        for account, values in cells:
            self._accounts += account
            for column, value in zip(self._numbers, values, strict=True):
                column.append(value)

    def account(self, index: int) -> Account:
        """Return the account of a row."""
        return Account(bytes(self._accounts[index * Account.SIZE : (index + 1) * Account.SIZE]))

    def __len__(self) -> int:
        return len(self._accounts) // Account.SIZE

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        rows = range(len(self))[index]
        if isinstance(rows, range):
            return tuple(map(self._row, rows))
        return self._row(rows)

    def __iter__(self) -> Iterator[Row]:
        begins = range(0, len(self._accounts), Account.SIZE)
        for begin, *values in zip(begins, *self._numbers, strict=True):
            yield self._build(Account(bytes(self._accounts[begin : begin + Account.SIZE])), *values)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Columns | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _row(self, index: int) -> Row:
        return self._build(self.account(index), *(column[index] for column in self._numbers))
