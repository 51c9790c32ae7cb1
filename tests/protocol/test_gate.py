"""What an account counts by its bond: in proportion, at most in full, and never more by splitting."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from sapo_protocol.identifiers import Account
from sapo_protocol.terms.gate import BondGate, points_cap

units = st.integers(1, 2**96 - 1)
amounts = st.integers(0, 2**96 - 1)


def gate(unit: int) -> BondGate:
    return BondGate(Account(bytes(20)), unit, exit_seconds=2**32)


@given(units, st.integers(0, 2**64 - 1), st.lists(amounts, max_size=70))
def test_splitting_a_bond_never_raises_what_it_earns(unit: int, most: int, parts: list[int]) -> None:
    whole = points_cap(most, Fraction(sum(parts), unit))
    assert sum(points_cap(most, gate(unit).units(part)) for part in parts) <= whole


@given(units, amounts, amounts)
def test_more_tokens_never_count_less_and_nothing_counts_more_than_one(unit: int, a: int, b: int) -> None:
    less, more = sorted((a, b))
    assert 0 <= gate(unit).units(less) <= gate(unit).units(more) <= 1
    assert gate(unit).units(unit) == 1
    assert gate(unit).units(0) == 0


def test_a_cap_is_rounded_down() -> None:
    assert [points_cap(512, gate(64).units(bonded)) for bonded in (0, 1, 32, 63, 64, 65)] == [
        0,
        8,
        256,
        504,
        512,
        512,
    ]
