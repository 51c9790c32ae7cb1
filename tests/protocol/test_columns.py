"""Columns: rows that equal tuples, kept in a fraction of their memory."""

from sapo_protocol.columns import Columns
from sapo_protocol.contributions import Share
from sapo_protocol.identifiers import Account

ROWS = tuple(Share(Account(bytes(19) + bytes((n,))), n, 2**64 - 1 - n) for n in range(5))
SHARES = Columns(Share, 2, ((row.account, (row.points, row.cumulative)) for row in ROWS))


def test_columns_are_the_sequence_of_their_rows() -> None:
    assert tuple(SHARES) == ROWS
    assert SHARES == ROWS
    assert (SHARES[0], SHARES[-1], len(SHARES)) == (ROWS[0], ROWS[-1], 5)
    assert (SHARES[1:4], SHARES[::-1]) == (ROWS[1:4], ROWS[::-1])
    assert (hash(SHARES), repr(SHARES)) == (hash(ROWS), repr(ROWS))


def test_columns_differ_from_other_rows_and_other_types() -> None:
    other = Columns(Share, 2, ((row.account, (row.points, 0)) for row in ROWS))
    assert other != SHARES
    assert ROWS[:4] != SHARES
    assert list(ROWS) != SHARES
    assert SHARES != "rows"
